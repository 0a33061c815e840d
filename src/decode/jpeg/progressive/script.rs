//! Scan headers of progressive images, and the bits of the coefficients that the scans have coded
//! so far.

use super::super::frame::{Segments, Shape};
use crate::decode::JpegRefusal;

/// Header of a scan: the coefficient bits that the scan codes.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Numbers of the scan's components in ascending order. Only the first `component_count` are
    /// valid.
    components: [usize; 3],
    component_count: usize,
    /// Numbers of the DC tables of the scan's components.
    pub dc: [usize; 3],
    pub ac: usize,
    /// Positions of the first and the last coefficient that the scan codes, in zigzag order.
    pub band: [usize; 2],
    /// Whether the scan adds one bit to coefficients of earlier scans.
    pub refines: bool,
    /// Lowest bit that the scan codes.
    pub low: u32,
}

impl Scan {
    pub fn components(&self) -> &[usize] {
        &self.components[..self.component_count]
    }
}

/// Record of the coefficient bits that the scans have coded so far.
#[derive(Debug)]
pub struct Script {
    shape: Shape,
    pub scan_count: usize,
    /// Lowest bit of each coefficient that the scans have coded so far.
    low: [[Option<u8>; 64]; 3],
    /// Quantization table of each component, as defined before the component's first scan.
    steps: [Option<[u16; 64]>; 3],
}

/// Maximum value of a scan's lowest bit, as in libjpeg.
const MOST_LOW: u8 = 13;

impl Script {
    pub fn new(shape: Shape) -> Self {
        Self { shape, scan_count: 0, low: [[None; 64]; 3], steps: [None; 3] }
    }

    /// Reads the header of the next scan. Each bit of a coefficient must be coded once, after all
    /// higher bits.
    pub fn read(&mut self, body: &[u8], segments: &Segments<'_>) -> Result<Scan, JpegRefusal> {
        let scan = self.parse(body, segments).ok_or(JpegRefusal::Header)?;
        self.advance(&scan).ok_or(JpegRefusal::Progressive)?;
        self.scan_count += 1;
        Ok(scan)
    }

    /// Returns the quantization tables of the components if all coefficients are coded in full
    /// precision. In a gray image, all three tables are equal.
    pub fn steps(&self) -> Option<[&[u16; 64]; 3]> {
        let count = self.shape.component_count();
        let is_whole = self.low[..count].as_flattened().iter().all(|low| *low == Some(0));
        let of = |component: usize| self.steps[component.min(count - 1)].as_ref();
        if is_whole { Some([of(0)?, of(1)?, of(2)?]) } else { None }
    }

    fn parse(&mut self, body: &[u8], segments: &Segments<'_>) -> Option<Scan> {
        let entries = segments.entries()?;
        let (count, rest) = body.split_first()?;
        let component_count = usize::from(*count);
        let (named, spectrum) = rest.split_at_checked(2 * component_count)?;
        let &[first, last, bits] = spectrum else { return None };
        if !(1..=entries.len()).contains(&component_count) {
            return None;
        }
        let mut scan = Scan {
            components: [0; 3],
            component_count,
            dc: [0; 3],
            ac: 0,
            band: [first.into(), last.into()],
            refines: bits >> 4 > 0,
            low: (bits & 15).into(),
        };
        let is_band = if first == 0 { last == 0 } else { first <= last && last < 64 };
        let is_step = !scan.refines || bits >> 4 == (bits & 15) + 1;
        if !is_band || !is_step || bits & 15 > MOST_LOW || first > 0 && component_count > 1 {
            return None;
        }
        for (at, &[name, codes]) in named.as_chunks::<2>().0.iter().enumerate() {
            let component = entries.iter().position(|[id, ..]| *id == name)?;
            // libjpeg accepts components in any order, but all known encoders write them in
            // ascending order.
            if at > 0 && component <= scan.components[at - 1] {
                return None;
            }
            scan.components[at] = component;
            scan.dc[at] = (codes >> 4).into();
            scan.ac = (codes & 15).into();
            let steps = &mut self.steps[component];
            if steps.is_none() {
                let number = usize::from(entries[component][2]);
                *steps = Some((*segments.tables.quantization.get(number)?)?);
            }
        }
        Some(scan)
    }

    /// Records the bits that a scan codes. Returns `None` if these bits were coded before, or if
    /// higher bits are missing.
    fn advance(&mut self, scan: &Scan) -> Option<()> {
        let [first, last] = scan.band;
        let expected = scan.refines.then_some(scan.low as u8 + 1);
        for &component in scan.components() {
            let low = &mut self.low[component];
            let has_dc = first == 0 || low[0].is_some();
            let band = &mut low[first..=last];
            if !has_dc || band.iter().any(|low| *low != expected) {
                return None;
            }
            band.fill(Some(scan.low as u8));
        }
        Some(())
    }
}
