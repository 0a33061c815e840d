//! The CUDA source of each formula, compiled for the host, computes the same bits as the Rust
//! function.

use std::fmt::Debug;
use std::sync::LazyLock;

use bytemuck::Pod;
use feedwater::internals::geometry::Size;
use feedwater::internals::gpu::host_kernel::HostCompiler;
use feedwater::internals::image::HostImage;
use feedwater::internals::op::Actions;
use feedwater::internals::op::colour::{
    channel_permutation, color_twist, contrast, hue, normalize_image, saturation,
};
use feedwater::internals::op::erase::{cutout, grid_mask, random_erasing};
use feedwater::internals::op::filter::{sharpen, sharpness};
use feedwater::internals::op::kind::{
    ColourFormula, Kind, PositionFormula, StatisticsFormula, StencilFormula,
};
use feedwater::internals::op::noise::{gaussian_noise, salt_and_pepper};
use feedwater::internals::op::shared::Histograms;
use feedwater::internals::random::{SampleKey, SampleRng};
use feedwater::op::custom::{Cuda, Draw, Kinds};
use feedwater::op::{
    Autocontrast, ChannelPermutation, ColorTwist, Contrast, Cutout, Equalize, GaussianNoise,
    Grayscale, GridMask, Hue, NormalizeImage, Operator, RandomErasing, SaltAndPepper, Saturation,
    Sharpen, Sharpness, ToYcbcr,
};

use super::pictures::{bytes, colours, pictures};
use crate::common::some_of;
use crate::golden::picture;

/// Entry point that is added to a formula's CUDA source. It runs `BODY` for each item `i`, with the
/// parameters `p`.
const CALL: &str = r#"
struct Call {
    const void *params, *in;
    void* out;
    long long count, width;
};
extern "C" void fused__host(void** params, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) {
    (void)threadIdx, (void)blockIdx, (void)blockDim, (void)gridDim;
    const Call& call = **(const Call**)params[0];
    const PARAMS& p = *(const PARAMS*)call.params;
    for (long long i = 0; i < call.count; ++i) {
        BODY
    }
}
"#;

/// Runs the CUDA source of a formula on `input`. `body` is C++ code that computes output item `i`.
/// In `body`, `FORMULA` stands for the formula's type.
fn run<P: Pod, I: Pod, O: Pod>(
    cuda: Option<Cuda>,
    body: &str,
    params: &P,
    input: &[I],
    width: usize,
    out: &mut [O],
) {
    let Cuda { type_name: name, text, .. } = cuda.unwrap();
    let body = body.replace("FORMULA", name);
    let parts = [
        include_str!("../../../kernels/image.cu"),
        include_str!("../../../kernels/colour.cu"),
        text,
        &CALL.replace("PARAMS", &format!("{name}Params")).replace("BODY", &body),
    ];
    let text = parts.concat();
    assert!(size_of::<P>().is_multiple_of(8) && size_of::<P>() <= 96, "{name}");
    let compiler = HostCompiler::of_process();
    let kernel = compiler.compile(name, &text).unwrap_or_else(|error| panic!("{error:?}"));
    let pointers = [
        std::ptr::from_ref(params) as u64,
        input.as_ptr() as u64,
        out.as_mut_ptr() as u64,
        out.len() as u64,
        width as u64,
    ];
    kernel.launch(bytemuck::cast_slice(&pointers), 1, Size::new(1, 1), (1, 1));
}

/// An operator with a colour formula and fixed parameters.
#[derive(Debug)]
struct Fixed<F: ColourFormula>(F::Params);

impl<F: ColourFormula + Debug> Operator for Fixed<F>
where
    F::Params: Debug + Send + Sync,
{
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::colour::<F>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.colour::<F>(&self.0);
    }
}

/// Compares a colour formula in Rust and CUDA, for all 2^24 colours. The library calls the Rust
/// function, because this package is built without optimization.
fn colour<F: ColourFormula + Debug>(params: F::Params)
where
    F::Params: Debug + Send + Sync,
{
    static COLOURS: LazyLock<HostImage> = LazyLock::new(|| HostImage::U8(colours()));
    let mut out = vec![0u8; bytes(&COLOURS).len()];
    let body = "((Bytes*)call.out)[i] = FORMULA::of(p, ((const Bytes*)call.in)[i]);";
    let (colours, theirs) = (bytes(&COLOURS).as_chunks::<3>().0, out.as_chunks_mut::<3>().0);
    run(F::CUDA, body, &params, colours, 0, theirs);
    let operator: &dyn Operator = &Fixed::<F>(params);
    let actions = Actions::of([operator], SampleKey::default(), COLOURS.window().size());
    let ours = actions.reference(&COLOURS);
    if bytes(&ours) != out {
        let at = bytes(&ours).iter().zip(&out).position(|(ours, theirs)| ours != theirs).unwrap();
        panic!("{} {params:?}: {:?}", F::CUDA.unwrap().type_name, colours[at / 3]);
    }
}

#[test]
fn formulas_of_colours_equal_their_twins() {
    for factor in some_of([0.0, 0.37, 1.0, 1.9, 1e6], 1) {
        colour::<Saturation>(saturation::Params { factor, padding: 0 });
    }
    for shift in some_of([-0.5, 0.0, 0.1], 2) {
        colour::<Hue>(hue::Params::new(shift));
    }
    let twists = [[1.0, 1.0, 1.0, 0.0], [0.9, 1.3, 1.7, 35.0], [3.0, 0.2, 0.0, -120.0]];
    for twist in some_of(twists, 1) {
        let [brightness, contrast, saturation, hue] = twist;
        let params = color_twist::Params::new(brightness, contrast, saturation, hue);
        colour::<ColorTwist>(params);
    }
    colour::<ChannelPermutation>(channel_permutation::Params { order: [2, 0, 1], padding: 0 });
    colour::<Grayscale>([0; 2]);
    colour::<ToYcbcr>([0; 2]);
}

/// Returns histograms to test: those of test images, random ones with gaps, and that of the largest
/// possible image.
fn histograms() -> Vec<Histograms> {
    let of = |pixels: &[[u8; 3]]| {
        let mut histograms = Histograms::EMPTY;
        histograms.add(pixels);
        histograms
    };
    let mut all: Vec<Histograms> =
        pictures().iter().map(|image| of(image.data().as_chunks().0)).collect();
    let mut rng = SampleRng::new(SampleKey::default(), 0);
    for _ in 0..300 {
        let mut histograms = Histograms::EMPTY;
        let bits = rng.below(25);
        let (gap, most) = (rng.below(256), 1 + rng.below(1 << bits));
        for bins in histograms.channel.iter_mut().chain([&mut histograms.gray]) {
            let (low, high) = (rng.below(256) as usize, rng.below(257) as usize);
            for bin in &mut bins[low.min(high)..high.max(low)] {
                *bin = if rng.below(256) < gap { 0 } else { rng.below(most) as u32 };
            }
        }
        all.push(histograms);
    }
    let mut largest = Histograms::EMPTY;
    for (at, bins) in largest.channel.iter_mut().chain([&mut largest.gray]).enumerate() {
        bins[3 * at] = 7;
        bins[255 - at] = 65_500 * 65_500 - 7;
    }
    all.push(largest);
    all
}

/// Compares a statistics formula in Rust and CUDA, for many histograms. `kind` is the C++ type of
/// its values.
fn statistics<F: StatisticsFormula, T: Pod + PartialEq + Debug>(
    kind: &str,
    params: &F::Params,
    bits: fn(&F::Value) -> T,
) {
    let body = format!(
        "(({kind}*)call.out)[i] = FORMULA::of(p, ((const Histograms*)call.in)[i / 768], (int)(i / 256 % 3), (int)(i % 256));"
    );
    let histograms = histograms();
    let mut out = vec![T::zeroed(); 768 * histograms.len()];
    run(F::CUDA, &body, params, &histograms, 0, &mut out);
    for (at, (histograms, theirs)) in histograms.iter().zip(out.chunks(768)).enumerate() {
        let table = F::table(params, histograms);
        let ours: Vec<T> = table.as_flattened().iter().map(bits).collect();
        assert_eq!(ours, theirs, "{:?} {at}", F::CUDA);
    }
}

#[test]
fn formulas_of_histograms_equal_their_twins() {
    for factor in [0.0, 0.63, 1.0, 2.4] {
        let params = contrast::Params { factor, padding: 0 };
        statistics::<Contrast, u8>("unsigned char", &params, |&byte| byte);
    }
    statistics::<Autocontrast, u8>("unsigned char", &[0; 2], |&byte| byte);
    statistics::<Equalize, u8>("unsigned char", &[0; 2], |&byte| byte);
    for per_channel in [0, 1] {
        let params = normalize_image::Params { per_channel, padding: 0 };
        statistics::<NormalizeImage, u32>("float", &params, |value| value.to_bits());
    }
}

/// Size of the images for position formulas.
const SIZE: Size = Size { width: 700, height: 400 };

/// Returns the column and row of pixel number `at`.
fn place(at: usize) -> (i32, i32) {
    ((at % 700) as i32, (at / 700) as i32)
}

const AT: &str = "FORMULA::of(p, (int)(i % call.width), (int)(i / call.width), ";

/// Compares a position formula in Rust and CUDA, on bytes.
fn position<F: PositionFormula>(params: &F::Params) {
    let image = picture(SIZE, 3);
    let pixels = image.data().as_chunks::<3>().0;
    let mut out = vec![[0u8; 3]; pixels.len()];
    let body = format!("((Bytes*)call.out)[i] = {AT}((const Bytes*)call.in)[i]);");
    run(F::CUDA, &body, params, pixels, 700, &mut out);
    for (at, (&pixel, &theirs)) in pixels.iter().zip(&out).enumerate() {
        let (x, y) = place(at);
        assert_eq!(F::bytes(params, x, y, pixel), theirs, "{:?} {x} {y}", F::CUDA);
    }
}

/// Compares a position formula in Rust and CUDA, on floats.
fn position_of_floats<F: PositionFormula>(params: &F::Params) {
    let pixels = vec![[0.25f32, -1.0, 3.5]; SIZE.pixels() as usize];
    let mut out = vec![[0f32; 3]; pixels.len()];
    let body = format!("((Floats3*)call.out)[i] = {AT}((const Floats3*)call.in)[i]);");
    run(F::CUDA, &body, params, &pixels, 700, &mut out);
    for (at, (&pixel, theirs)) in pixels.iter().zip(&out).enumerate() {
        let (x, y) = place(at);
        let ours = F::floats(params, x, y, pixel);
        assert_eq!(ours.map(f32::to_bits), theirs.map(f32::to_bits), "{:?} {x} {y}", F::CUDA);
    }
}

#[test]
fn formulas_of_positions_equal_their_twins() {
    for (mean, sigma) in [(0.0, 0.1), (0.3, 10.0), (-0.2, 0.0)] {
        for is_gray in [0, 1] {
            let params = gaussian_noise::Params::new(mean, sigma, [1, 0xffff_fffe]);
            position::<GaussianNoise>(&gaussian_noise::Params { is_gray, ..params });
        }
    }
    for (prob, salt, per_channel) in [(0.05, 0.5, false), (0.4, 0.8, true), (1.0, 1.0, true)] {
        let params = salt_and_pepper::Params::new(prob, salt, per_channel, [9, 8]);
        position::<SaltAndPepper>(&params);
    }
    for (tile, ratio, angle, shift) in
        [(100.0, 0.5, 0.0, [0.0, 0.0]), (17.0, 0.3, 0.7, [5.0, -3.5]), (1.0, 1.0, 3.0, [0.0, 0.5])]
    {
        position::<GridMask>(&grid_mask::Params::new(tile, ratio, angle, shift, [1, 2, 3]));
    }
    for (holes, length) in [(0, 9), (1, 30), (8, 101)] {
        let mut rng = SampleRng::new(SampleKey::default(), 0);
        position::<Cutout>(&cutout::Params::draw(SIZE, holes, length, [7, 8, 9], &mut rng));
    }
    for (std, is_gray) in
        [([0.0; 3], 0), ([58.395, 57.12, 57.375], 0), ([58.395, 57.12, 57.375], 1)]
    {
        let mean = [123.675, 116.28, 103.53];
        let (x, y, right, bottom) = (13, 50, 600, 390);
        let params = random_erasing::Params {
            x,
            y,
            right,
            bottom,
            mean,
            std,
            key: [4, 5],
            is_gray,
            padding: 0,
        };
        position::<RandomErasing>(&params);
        position_of_floats::<RandomErasing>(&params);
    }
}

/// Compares a stencil formula in Rust and CUDA, on all neighbourhoods of an image.
fn stencil<F: StencilFormula>(params: &F::Params) {
    let image = picture(Size::new(211, 97), 8);
    let around = |x: u32, y: u32| {
        std::array::from_fn(|at| image.pixel(x + at as u32 % 3, y + at as u32 / 3))
    };
    let places = (0..95).flat_map(|y| (0..209).map(move |x| (x, y)));
    let input: Vec<[[u8; 3]; 9]> = places.map(|(x, y)| around(x, y)).collect();
    let mut out = vec![[0u8; 3]; input.len()];
    let body = "((Bytes*)call.out)[i] = FORMULA::of(p, ((const Bytes(*)[9])call.in)[i]);";
    run(F::CUDA, body, params, &input, 0, &mut out);
    for (around, &theirs) in input.iter().zip(&out) {
        assert_eq!(F::pixel(params, around), theirs, "{:?} {around:?}", F::CUDA);
    }
}

#[test]
fn stencils_equal_their_twins() {
    for factor in [0.0, 0.4, 1.0, 2.5] {
        stencil::<Sharpness>(&sharpness::Params { factor, padding: 0 });
        stencil::<Sharpen>(&sharpen::Params { amount: factor, padding: 0 });
    }
}
