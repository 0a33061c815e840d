//! Stand-in for the fast resampler until it is merged.
use crate::geometry::Roi;
use crate::image::Image;
use crate::op::resample::{HALF, PRECISION_BITS, Params};
use bytemuck::Zeroable;

pub struct Resampler {
    params: Params,
    table: Vec<i32>,
    input: Roi,
    between: Image<u8>,
}
impl Default for Resampler {
    fn default() -> Self {
        Self {
            params: Params::zeroed(),
            table: vec![],
            input: Roi::default(),
            between: Image::default(),
        }
    }
}
impl Resampler {
    pub fn begin(&mut self, params: &Params, table: &[i32], input: Roi) {
        self.params = *params;
        self.table.clear();
        self.table.extend_from_slice(table);
        self.input = input;
        self.between.reset(Roi::new(params.x as u32, input.y, params.width as u32, input.height));
    }
    pub fn push_row(&mut self, y: u32, row: &[u8]) {
        let columns = self.params.columns(&self.table);
        for c in 0..columns.len() {
            let (first, coefs) = columns.output(c);
            let mut s = [HALF; 3];
            for (k, x) in coefs.iter().zip(first - self.input.x..) {
                for ch in 0..3 {
                    s[ch] += k * i32::from(row[3 * x as usize + ch]);
                }
            }
            self.between.set_pixel(
                self.params.x as u32 + c as u32,
                y,
                s.map(|s| (s >> PRECISION_BITS).clamp(0, 255) as u8),
            );
        }
    }
    pub fn output_row(&mut self, y: u32, out: &mut [u8]) {
        let rows = self.params.rows(&self.table);
        let (first, coefs) = rows.output((y - self.params.y as u32) as usize);
        for (i, o) in out.iter_mut().enumerate() {
            let mut s = HALF;
            for (k, y) in coefs.iter().zip(first..) {
                s += k * i32::from(self.between.row(y)[i]);
            }
            *o = (s >> PRECISION_BITS).clamp(0, 255) as u8;
        }
    }
}
