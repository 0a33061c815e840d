//! What the simulated driver knows about launches.

use super::Simulated;

impl Simulated {
    /// Blocks of the last launch: columns, rows, samples.
    pub fn last_grid(&self) -> [u32; 3] {
        let mut grid = [0; 3];
        let get = |f: extern "C" fn(*mut u32)| f(grid.as_mut_ptr());
        self.call(&self.libraries.driver, "sim_last_grid", get);
        grid
    }
}
