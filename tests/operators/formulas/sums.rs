//! Tests the kernel function `added`, which adds a step many times at once. Its result must equal
//! that of `count` single additions, each of which is rounded.

use std::sync::{Arc, LazyLock};

use bytemuck::{Pod, Zeroable};

use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::host_kernel::{HostCompiler, HostKernel};
use feedwater::internals::random::{SampleKey, SampleRng};

/// A sum to compute: `at` plus `count` times `step`, with rounding after each addition. The kernel
/// stores it at the address `out`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Sum {
    out: u64,
    at: f64,
    step: f64,
    count: i32,
    unused: i32,
}

const ADDS: &str = "
struct Sum {
    double* out;
    double at, step;
    int count, unused;
};
extern \"C\" void fused__host(void** params, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) {
    (void)threadIdx, (void)blockIdx, (void)blockDim, (void)gridDim;
    const Sum* sums = *(const Sum**)params[0];
    for (int i = 0; i < *(int*)params[1]; i++) *sums[i].out = Warp<Roi>::added(sums[i].at, sums[i].step, sums[i].count);
}
";

static KERNEL: LazyLock<Arc<HostKernel>> = LazyLock::new(|| {
    let texts =
        [include_str!("../../../kernels/image.cu"), include_str!("../../../kernels/warp.cu"), ADDS];
    let compiler = HostCompiler::of_process();
    compiler.compile("sums", &texts.concat()).unwrap_or_else(|error| panic!("{error:?}"))
});

#[track_caller]
fn check(sums: &[(f64, f64, i32)]) {
    let mut found = vec![0f64; sums.len()];
    let described: Vec<_> = sums
        .iter()
        .zip(&mut found)
        .map(|(&(at, step, count), out)| Sum {
            out: std::ptr::from_mut(out) as u64,
            at,
            step,
            count,
            unused: 0,
        })
        .collect();
    KERNEL.launch(bytemuck::cast_slice(&described), sums.len(), Size::new(1, 1), (1, 1));
    for (&(at, step, count), found) in sums.iter().zip(found) {
        let expected = (0..count).fold(at, |sum, _| sum + step);
        let same = expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
        assert!(same, "{count} times {step:e} from {at:e}: {found:e} instead of {expected:e}");
    }
}

/// Returns a random number with a magnitude near 2^`exponent`. Either all its bits are random, or
/// only the first few are set.
fn number(rng: &mut SampleRng, exponent: i32) -> f64 {
    let sign = if rng.below(2) == 0 { 1.0 } else { -1.0 };
    let value = sign * rng.between(1.0, 2.0) * 2f64.powi(exponent);
    let bits = rng.below(4) * 16;
    f64::from_bits(value.to_bits() >> bits << bits)
}

#[test]
fn sums_are_those_of_one_addition_after_another() {
    let mut rng = SampleRng::new(SampleKey::default(), 8);
    let mut sums = Vec::new();
    for round in 0..6000 {
        // The steps range from far below to far above one unit in the last place of `at`.
        let exponent = rng.below(24) as i32 - 8;
        let below = rng.below(60) as i32 - 4;
        let at = number(&mut rng, exponent);
        let step = number(&mut rng, exponent - below);
        let count = rng.below([8, 100, 3000, 20_000][round % 4]) as i32;
        sums.push((at, step, count));
    }
    check(&sums);
}

/// In each interval between powers of two, adding a step of half a unit in the last place is
/// rounded to the even neighbour.
#[test]
fn ties_are_rounded_to_even() {
    let mut sums = Vec::new();
    for exponent in [0, 7] {
        let unit = f64::EPSILON * 2f64.powi(exponent);
        for halves in [1.0, 3.0, 5.0, 7.0, 1e3 + 1.0, 2f64.powi(44) + 1.0] {
            for units in [0.0, 1.0, 2.0, 3.0, 2f64.powi(51), 2f64.powi(52) - 5.0] {
                for sign in [1.0, -1.0] {
                    let at = 2f64.powi(exponent) + units * unit;
                    sums.extend(
                        [1, 2, 3, 4, 7, 50, 4000]
                            .map(|count| (at, sign * halves * unit / 2.0, count)),
                    );
                }
            }
        }
    }
    check(&sums);
}

#[test]
fn sums_at_the_ends_of_the_numbers() {
    let values = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 2.2e-308, 1e308, -1e308, 1.7e308];
    let strange = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e305, 1e300, 1e-310];
    let all = || values.into_iter().chain(strange);
    let sums = all().flat_map(|at| {
        all().flat_map(move |step| [0, 1, 3, 5, 900].map(|count| (at, step, count)))
    });
    check(&sums.collect::<Vec<_>>());
}
