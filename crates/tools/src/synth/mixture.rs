//! Chooses the encoding of each file of a set like ImageNet: its size, chroma sampling, quality and
//! Huffman tables.
//!
//! These proportions were counted on 1,000 ImageNet files:
//!
//! * Chroma sampling: 4:4:4 76 %, 4:2:0 20 %, gray 2.3 %, 4:2:2 1.2 %, 4:4:0 0.1 %.
//! * Huffman tables: 97.9 % of the files have tables of their own. No file has restart markers.
//! * Quality: about 96 for 65 % of the files, and 75 to 95 for the others.
//! * Size: 75x56 to 2400x1600 pixels, with a median of 0.19 megapixels.
//! * The files have 0.54 bytes per pixel.

use feedwater::internals::header::Sampling;
use feedwater::internals::random::{SampleKey, SampleRng};

use super::image::Detail;

/// Encoding of one file, and the amount of detail in its image.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// Width and height in pixels.
    pub size: [u32; 2],
    pub sampling: Sampling,
    pub quality: u8,
    pub progressive: bool,
    pub own_tables: bool,
    pub detail: Detail,
}

/// Number of files per 1,000 with each chroma sampling.
const SAMPLINGS: [(u32, Sampling); 5] = [
    (764, Sampling::S444),
    (200, Sampling::S420),
    (23, Sampling::Gray),
    (12, Sampling::S422),
    (1, Sampling::S440),
];

/// Ranges of sizes: the number of files per 1,000, the smallest size and the largest size (width,
/// height). The sizes of these files are spread evenly between the two. The ranges are sorted by
/// pixels, and half of all files have at most 500x375 pixels.
const SIZES: [(u32, [u32; 2], [u32; 2]); 27] = [
    (20, [75, 56], [200, 150]),
    (15, [100, 100], [300, 300]),
    (20, [90, 120], [225, 300]),
    (35, [200, 150], [400, 300]),
    (30, [400, 300], [400, 300]),
    (25, [350, 350], [400, 400]),
    (50, [500, 281], [500, 332]),
    (30, [281, 500], [332, 500]),
    (130, [500, 333], [500, 333]),
    (45, [333, 500], [333, 500]),
    (300, [500, 375], [500, 375]),
    (85, [375, 500], [375, 500]),
    (60, [500, 376], [500, 499]),
    (25, [376, 500], [499, 500]),
    (30, [500, 500], [500, 500]),
    (40, [640, 480], [640, 480]),
    (8, [480, 640], [480, 640]),
    (8, [640, 425], [800, 600]),
    (4, [600, 800], [600, 800]),
    (14, [1024, 768], [1024, 768]),
    (4, [768, 1024], [768, 1024]),
    (2, [1024, 1024], [1024, 1024]),
    (8, [1024, 683], [1280, 960]),
    (8, [1280, 960], [1600, 1200]),
    (2, [1600, 1200], [2048, 1536]),
    (1, [2048, 1536], [2048, 1536]),
    (1, [2400, 1600], [2400, 1600]),
];

/// Number of files per 1,000 with quality 96, and the range of qualities of the other files.
const FINE: (u32, u8) = (650, 96);
const COARSE: [u8; 2] = [75, 95];

/// Strength of the grain at seven equally spaced quantiles, from the smoothest to the busiest file.
const GRAIN: [f64; 7] = [0.15, 0.42, 0.57, 0.68, 0.77, 0.87, 1.07];

/// Strength of the sensor noise, relative to the grain. The value is low because most photographs
/// of ImageNet were downscaled, which averages the noise of pixels.
const NOISE: f64 = 0.3;

/// Strength of changes of colour, relative to changes of lightness.
const COLOUR: f32 = 0.6;

/// Share of files with Huffman tables of their own. The second constant is the share of progressive
/// files.
const OWN_TABLES: f64 = 0.979;
const PROGRESSIVE: f64 = 0.005;

impl Encoding {
    /// Returns the encoding and detail of file `index` of the set with seed `seed`.
    ///
    /// Each property of successive files follows an additive recurrence. So any run of consecutive
    /// files has about the same proportions as the whole set. The steps are Roberts' R-sequence in
    /// six dimensions.
    pub fn of(seed: u64, index: u64) -> Self {
        /// 2^64 divided by the first six powers of the root of `x^7 = x + 1`.
        const STEPS: [u64; 6] = [
            0xe60e_2b72_2b53_aeeb,
            0xcebd_76d9_edb6_a8ef,
            0xb9c9_aa3a_51d0_0b65,
            0xa6f5_777f_6f88_983f,
            0x9609_c71e_b7d0_3f7a,
            0x86d5_16e5_0b04_ab1b,
        ];
        let mut start = SampleRng::new(SampleKey { seed, epoch: 1, index: 0 }, 0);
        let [size, sampling, quality, detail, tables, progressive] = STEPS.map(|step| {
            let start = u64::from(start.bits()) << 32 | u64::from(start.bits());
            let place = start.wrapping_add(index.wrapping_mul(step));
            (place >> 11) as f64 / (1u64 << 53) as f64
        });
        Self {
            size: size_at(size),
            sampling: SAMPLINGS[pick(sampling, SAMPLINGS.map(|(share, _)| share)).0].1,
            quality: quality_at(quality),
            own_tables: tables < OWN_TABLES,
            progressive: progressive < PROGRESSIVE,
            detail: detail_at(detail),
        }
    }
}

fn size_at(quantile: f64) -> [u32; 2] {
    let (class, part) = pick(quantile, SIZES.map(|(share, ..)| share));
    let (_, from, to) = SIZES[class];
    [0, 1].map(|axis| from[axis] + (part * f64::from(to[axis] - from[axis]) + 0.5) as u32)
}

fn quality_at(quantile: f64) -> u8 {
    let (share, fine) = FINE;
    match pick(quantile, [share, 1000 - share]) {
        (0, _) => fine,
        (_, part) => COARSE[0] + (part * f64::from(COARSE[1] - COARSE[0] + 1)) as u8,
    }
}

fn detail_at(quantile: f64) -> Detail {
    let place = quantile * (GRAIN.len() - 1) as f64;
    // The quantile is below 1, so the index `place + 1` exists.
    let (from, to) = (GRAIN[place as usize], GRAIN[place as usize + 1]);
    let grain = from + place.fract() * (to - from);
    Detail { grain: grain as f32, noise: (NOISE * grain) as f32, colour: COLOUR }
}

/// Returns the index of the class into which a quantile falls, and the quantile within this class.
/// `shares` are the shares of the classes per 1,000.
fn pick<const N: usize>(quantile: f64, shares: [u32; N]) -> (usize, f64) {
    let mut rest = 1000.0 * quantile;
    for (class, share) in shares.into_iter().map(f64::from).enumerate() {
        if rest < share {
            return (class, rest / share);
        }
        rest -= share;
    }
    (N - 1, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        assert_eq!(SAMPLINGS.map(|it| it.0).iter().sum::<u32>(), 1000);
        assert_eq!(SIZES.map(|it| it.0).iter().sum::<u32>(), 1000);
    }

    /// Checks that runs of consecutive files have about the counted proportions, for several seeds.
    #[test]
    fn files_are_mixed_as_counted() {
        for (seed, first) in [(0, 0), (1, 0), (9, 1 << 40)] {
            let forms: Vec<_> =
                (first..first + 1000).map(|index| Encoding::of(seed, index)).collect();
            let count =
                |like: &dyn Fn(&Encoding) -> bool| forms.iter().filter(|form| like(form)).count();
            for (share, sampling) in SAMPLINGS {
                let found = count(&|form| form.sampling == sampling);
                assert!(found.abs_diff(share as usize) <= 6, "{sampling:?}: {found}");
            }
            assert!(count(&|form| form.quality == 96).abs_diff(650) <= 6);
            assert!(count(&|form| (75..=96).contains(&form.quality)) == 1000);
            assert!(count(&|form| form.own_tables).abs_diff(979) <= 6);
            assert!(count(&|form| form.progressive).abs_diff(5) <= 3);
            let mut pixels: Vec<u32> =
                forms.iter().map(|form| form.size[0] * form.size[1]).collect();
            pixels.sort_unstable();
            assert_eq!(pixels[500], 500 * 375);
            assert!(pixels[0] < 100 * 80 && pixels[999] >= 1600 * 1200, "{pixels:?}");
        }
    }

    #[test]
    fn extremes_of_the_counted_sizes_occur() {
        assert_eq!(size_at(0.0), [75, 56]);
        assert_eq!(size_at(0.999_999), [2400, 1600]);
        assert_eq!((quality_at(0.0), quality_at(0.65), quality_at(0.999_999)), (96, 75, 95));
    }
}
