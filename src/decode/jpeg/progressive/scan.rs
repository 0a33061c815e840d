//! Decoding of one scan, block by block.

use super::super::bands::{Bands, MOST_BLOCKS, MOST_BYTES};
use super::super::bits::{Clean, Input};
use super::super::frame::Segments;
use super::super::kernels::Kernels;
use super::Tables;
use super::script::Scan;
use super::store::{Grid, Store};

/// Decoder of one scan, with the scan's coded data and tables.
pub struct Walk<'a> {
    input: Input<'a>,
    kernels: Kernels,
    tables: &'a Tables,
    /// Number of MCUs between restart markers, or 0 without restart markers. In a scan with one
    /// component, an MCU is a block.
    interval: usize,
    /// Number of MCUs left before the next restart marker.
    left: usize,
    restarts: usize,
    /// DC coefficient of the most recently decoded block of each component.
    predictions: [i32; 3],
}

impl<'a> Walk<'a> {
    /// Builds the scan's tables. Returns `None` if a table is missing or could code coefficients
    /// that overflow.
    pub fn new(
        scan: &Scan,
        segments: &'a Segments<'_>,
        kernels: Kernels,
        tables: &'a mut Tables,
        clean: &'a mut Clean,
    ) -> Option<Self> {
        let defined = &segments.tables;
        if scan.band[0] > 0 {
            let code = defined.ac.get(scan.ac)?.as_ref()?;
            if scan.refines {
                tables.ac.renew(code);
            } else {
                (code.most_bits() + scan.low < 16).then_some(())?;
                tables.ac.renew_first(code);
            }
        } else if !scan.refines {
            for (&component, number) in scan.components().iter().zip(scan.dc) {
                let code = defined.dc.get(number)?.as_ref().filter(|code| code.is_dc())?;
                tables.dc[component].renew(code);
            }
        }
        Some(Self {
            input: Input::new(segments.rest, clean),
            kernels,
            tables,
            interval: defined.restart_interval,
            left: defined.restart_interval,
            restarts: 0,
            predictions: [0; 3],
        })
    }

    /// Decodes the scan and returns its length up to the next marker. Returns `None` for corrupt
    /// data.
    pub fn run(&mut self, scan: &Scan, store: &mut Store) -> Option<usize> {
        match *scan.components() {
            [component] if scan.band[0] > 0 => self.ac(scan, component, store)?,
            [component] => self.dc_of_one(scan, component, store)?,
            _ => self.dc_of_units(scan, store)?,
        }
        self.input.marker()?;
        Some(self.input.end())
    }

    fn ac(&mut self, scan: &Scan, component: usize, store: &mut Store) -> Option<()> {
        let grid = store.grids[component];
        let Store { masks, blocks, .. } = store;
        let [across, down] = grid.real;
        let mut bands = Bands { codes: &self.tables.ac, band: scan.band, low: scan.low, run: 0 };
        for y in 0..down {
            let mut x = 0;
            while x < across {
                let before = self.left;
                let mut now = self.restarted(across - x)?;
                // An end-of-band run must not extend beyond a restart marker.
                if before == 0 && self.interval > 0 && bands.run > 0 {
                    return None;
                }
                if bands.run > 0 && !scan.refines {
                    now = now.min(bands.run);
                    bands.run -= now;
                } else {
                    now = now.min(MOST_BLOCKS);
                    let kept = kept(&grid, x, y, &mut now);
                    let masks = masks.get_mut(grid.mask(x, y)..)?.get_mut(..now)?;
                    let blocks = match kept {
                        true => blocks.get_mut(grid.block(x, y)..)?.get_mut(..now)?,
                        false => &mut [],
                    };
                    self.input.ensure(MOST_BYTES);
                    let input = &mut self.input;
                    match scan.refines {
                        false => self.kernels.first(&mut bands, input, masks, blocks)?,
                        true => self.kernels.refine(&mut bands, input, masks, blocks)?,
                    }
                }
                x += now;
                self.left = self.left.saturating_sub(now);
            }
        }
        (bands.run == 0).then_some(())
    }

    fn dc_of_one(&mut self, scan: &Scan, component: usize, store: &mut Store) -> Option<()> {
        let grid = store.grids[component];
        let [across, down] = grid.real;
        for y in 0..down {
            for x in 0..across {
                self.restarted(1)?;
                self.left = self.left.saturating_sub(1);
                self.input.ensure(MOST_BYTES);
                self.dc(scan, component, [x, y], store)?;
            }
            self.is_sane()?;
        }
        Some(())
    }

    fn dc_of_units(&mut self, scan: &Scan, store: &mut Store) -> Option<()> {
        let [across, down] = store.units;
        for row in 0..down {
            for column in 0..across {
                self.restarted(1)?;
                self.left = self.left.saturating_sub(1);
                self.input.ensure(MOST_BYTES);
                for &component in scan.components() {
                    let [h, v] = store.grids[component].sampling;
                    for y in row * v..(row + 1) * v {
                        for x in column * h..(column + 1) * h {
                            self.dc(scan, component, [x, y], store)?;
                        }
                    }
                }
            }
            self.is_sane()?;
        }
        Some(())
    }

    /// Decodes a DC coefficient.
    #[inline(always)]
    fn dc(
        &mut self,
        scan: &Scan,
        component: usize,
        [x, y]: [usize; 2],
        store: &mut Store,
    ) -> Option<()> {
        let Self { input, tables, predictions, .. } = self;
        let (bits, clean) = input.parts();
        if !bits.refill(clean) {
            return None;
        }
        let value = if scan.refines {
            let bit = bits.buffer >> 63;
            bits.take(1);
            bit as i32
        } else {
            let difference = tables.dc[component].take(bits, clean)?;
            let prediction = &mut predictions[component];
            *prediction = prediction.wrapping_add(difference.value());
            *prediction
        };
        let grid = &store.grids[component];
        if grid.has(x, y) {
            store.blocks.get_mut(grid.block(x, y))?[0] |= (value << scan.low) as i16;
        }
        Some(())
    }

    /// Reads a restart marker if one is due. Returns how many of the next `units` MCUs precede the
    /// following marker.
    fn restarted(&mut self, units: usize) -> Option<usize> {
        if self.interval == 0 {
            return Some(units);
        }
        if self.left == 0 {
            self.input.restart(self.restarts)?;
            self.restarts += 1;
            self.left = self.interval;
            self.predictions = [0; 3];
        }
        Some(units.min(self.left))
    }

    /// Returns `None` if the data ended too early or a DC coefficient is out of range. libjpeg then
    /// decodes the image.
    fn is_sane(&self) -> Option<()> {
        let is_sane = self.predictions.iter().all(|it| it.unsigned_abs() < 1 << 30);
        (is_sane && self.input.is_inside()).then_some(())
    }
}

/// Whether the store holds the coefficients of the block at `(x, y)`. Reduces `count` to the number
/// of blocks, from this block on in the row, that are all held or all not held.
fn kept(grid: &Grid, x: usize, y: usize, count: &mut usize) -> bool {
    let [from, to] = grid.columns;
    let is_kept = grid.has(x, y);
    if grid.has_row(y) && x < to {
        *count = (*count).min(if is_kept { to } else { from } - x);
    }
    is_kept
}
