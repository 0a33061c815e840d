//! `salt_and_pepper`: turns single pixels white or black.

use bytemuck::{Pod, Zeroable};

use super::noise::words;

/// Parameters of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Params {
    /// Words below it make the pixel white.
    pub salt: u64,
    /// Other words below it make the pixel black.
    pub noise: u64,
    /// Key of the sample's noise.
    pub key: [u32; 2],
    /// 1 if each channel has its own word, 0 if a pixel is changed as a whole.
    pub per_channel: u32,
    /// Always 0.
    pub padding: u32,
}

impl Params {
    /// Parameters for the probability `prob` of a changed value, and the share `salt_vs_pepper` of white among them,
    /// both from 0 to 1, as in DALI.
    pub fn new(prob: f64, salt_vs_pepper: f64, per_channel: bool, key: [u32; 2]) -> Self {
        let words = |share: f64| (share * (1u64 << 32) as f64) as u64;
        let (salt, noise) = (words(prob * salt_vs_pepper), words(prob));
        Self { salt, noise, key, per_channel: per_channel.into(), padding: 0 }
    }
}

/// 255 with the probability `prob * salt_vs_pepper`, 0 with `prob * (1 - salt_vs_pepper)`, else the byte: DALI's
/// `noise.salt_and_pepper`.
#[inline(always)]
pub fn pixel(params: &Params, x: i32, y: i32, pixel: [u8; 3]) -> [u8; 3] {
    let words = words(params.key, x, y);
    std::array::from_fn(|channel| {
        let word = u64::from(words[if params.per_channel == 1 { channel } else { 0 }]);
        if word < params.salt {
            255
        } else if word < params.noise {
            0
        } else {
            pixel[channel]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_white_and_black_are_those_asked_for() {
        const PIXELS: i32 = 100_000;
        for (prob, white, per_channel) in [(0.05, 0.5, false), (0.3, 0.2, true), (1.0, 0.9, false)]
        {
            let params = Params::new(prob, white, per_channel, [3, 4]);
            let mut counts = [[0; 2]; 3];
            let mut whole = 0;
            for at in 0..PIXELS {
                let out = pixel(&params, at % 300, at / 300, [100; 3]);
                whole += i32::from(out == [out[0]; 3]);
                for (counts, byte) in counts.iter_mut().zip(out) {
                    counts[0] += i32::from(byte == 255);
                    counts[1] += i32::from(byte == 0);
                }
            }
            assert_eq!(whole == PIXELS, !per_channel);
            for counts in counts {
                for (count, share) in counts.into_iter().zip([prob * white, prob * (1.0 - white)]) {
                    let expected = f64::from(PIXELS) * share;
                    let off = (f64::from(count) - expected).abs();
                    assert!(off <= 4.0 * (expected * (1.0 - share)).sqrt(), "{count} {expected}");
                }
            }
        }
    }

    #[test]
    fn probabilities_of_0_and_1_are_exact() {
        let none = Params::new(0.0, 0.5, true, [1, 2]);
        let all = Params::new(1.0, 1.0, true, [1, 2]);
        for x in 0..10_000 {
            assert_eq!(pixel(&none, x, 0, [1, 2, 3]), [1, 2, 3]);
            assert_eq!(pixel(&all, x, 0, [1, 2, 3]), [255; 3]);
        }
    }
}
