//! What the simulated driver recorded about launches.

use super::Simulated;

impl Simulated {
    /// Returns the grid of the last launch: the number of blocks in columns, rows and samples.
    pub fn last_grid(&self) -> [u32; 3] {
        let mut grid = [0; 3];
        let get = |f: extern "C" fn(*mut u32)| f(grid.as_mut_ptr());
        self.call(&self.libraries.driver, "sim_last_grid", get);
        grid
    }
}
