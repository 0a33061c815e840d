//! CUDA texts of the formulas, compiled for the host, against the Rust functions: equal bit for bit.

use bytemuck::Pod;
use feedwater::geometry::Size;
use feedwater::gpu::host_kernel::HostCompiler;
use feedwater::op::formula::{
    Histograms, autocontrast, channel_permutation, color_twist, contrast, cutout, equalize,
    gaussian_noise, grayscale, grid_mask, hue, normalize_image, random_erasing, salt_and_pepper,
    saturation, sharpen, sharpness, to_ycbcr,
};
use feedwater::random::{SampleKey, SampleRng};

use super::pictures::{Picture, colours, pictures};

/// Entry of a compiled text: runs `BODY` for each item `i` with the parameters `p`.
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

/// Runs the text of an operator: `body` computes item number `i` of the output.
fn run<P: Pod, I: Pod, O: Pod>(
    name: &str,
    text: &str,
    body: &str,
    params: &P,
    input: &[I],
    width: usize,
    out: &mut [O],
) {
    let parts = [
        include_str!("../../kernels/image.cu"),
        include_str!("../../kernels/colour.cu"),
        text,
        &CALL.replace("PARAMS", &format!("{name}Params")).replace("BODY", body),
    ];
    let text = parts.concat();
    assert!(size_of::<P>().is_multiple_of(8) && size_of::<P>() <= 96, "{name}");
    let compiler = HostCompiler::temporary().unwrap();
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

/// Compares an operator on colours for all 2^24 of them.
fn colour<P: Pod>(name: &str, text: &str, params: &P, of: impl Fn([u8; 3]) -> [u8; 3]) {
    let colours = colours().pixels;
    let mut out = vec![[0u8; 3]; colours.len()];
    let body = format!("((Bytes*)call.out)[i] = {name}::of(p, ((const Bytes*)call.in)[i]);");
    run(name, text, &body, params, &colours, 0, &mut out);
    for (&colour, &theirs) in colours.iter().zip(&out) {
        assert_eq!(of(colour), theirs, "{name} {colour:?}");
    }
}

/// Text of an operator.
macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../kernels/", $name, ".cu"))
    };
}

#[test]
fn operators_on_colours_equal_their_twins() {
    let none = [0u32; 2];
    for factor in [0.0, 0.37, 1.0, 1.9, 1e6] {
        let params = saturation::Params { factor, padding: 0 };
        colour("Saturation", text!("saturation"), &params, |it| saturation::pixel(&params, it));
    }
    for shift in [-0.5, 0.0, 0.1] {
        let params = hue::Params::new(shift);
        colour("Hue", text!("hue"), &params, |it| hue::pixel(&params, it));
    }
    for twist in [[1.0, 1.0, 1.0, 0.0], [0.9, 1.3, 1.7, 35.0], [3.0, 0.2, 0.0, -120.0]] {
        let params = color_twist::Params::new(twist[0], twist[1], twist[2], twist[3]);
        colour("ColorTwist", text!("color_twist"), &params, |it| color_twist::pixel(&params, it));
    }
    let params = channel_permutation::Params { order: [2, 0, 1], padding: 0 };
    colour("ChannelPermutation", text!("channel_permutation"), &params, |it| {
        channel_permutation::pixel(&params, it)
    });
    colour("Grayscale", text!("grayscale"), &none, grayscale::pixel);
    colour("ToYcbcr", text!("to_ycbcr"), &none, to_ycbcr::pixel);
}

/// Histograms of pictures, of random counts with gaps, and of the largest image.
fn histograms() -> Vec<Histograms> {
    let mut all: Vec<Histograms> = pictures().iter().map(Picture::histograms).collect();
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

fn statistics<P: Pod, T: Pod + PartialEq + std::fmt::Debug>(
    name: &str,
    text: &str,
    kind: &str,
    params: &P,
    of: impl Fn(&Histograms) -> [[T; 256]; 3],
) {
    let body = format!(
        "(({kind}*)call.out)[i] = {name}::of(p, ((const Histograms*)call.in)[i / 768], (int)(i / 256 % 3), (int)(i % 256));"
    );
    let histograms = histograms();
    let mut out = vec![T::zeroed(); 768 * histograms.len()];
    run(name, text, &body, params, &histograms, 0, &mut out);
    for (at, (histograms, theirs)) in histograms.iter().zip(out.chunks(768)).enumerate() {
        assert_eq!(of(histograms).as_flattened(), theirs, "{name} {at}");
    }
}

#[test]
fn operators_with_statistics_equal_their_twins() {
    let none = [0u32; 2];
    for factor in [0.0, 0.63, 1.0, 2.4] {
        let params = contrast::Params { factor, padding: 0 };
        statistics("Contrast", text!("contrast"), "unsigned char", &params, |it| {
            contrast::tables(&params, it)
        });
    }
    statistics("Autocontrast", text!("autocontrast"), "unsigned char", &none, autocontrast::tables);
    statistics("Equalize", text!("equalize"), "unsigned char", &none, equalize::tables);
    for per_channel in [0, 1] {
        let params = normalize_image::Params { per_channel, padding: 0 };
        statistics("NormalizeImage", text!("normalize_image"), "float", &params, |it| {
            normalize_image::tables(&params, it).map(|table| table.map(f32::to_bits))
        });
    }
}

/// Compares an operator on positions.
fn position<P: Pod>(name: &str, text: &str, params: &P, of: impl Fn(i32, i32, [u8; 3]) -> [u8; 3]) {
    let picture = Picture::waves(700, 400, 3);
    let mut out = vec![[0u8; 3]; picture.pixels.len()];
    let body = format!(
        "((Bytes*)call.out)[i] = {name}::of(p, (int)(i % call.width), (int)(i / call.width), ((const Bytes*)call.in)[i]);"
    );
    run(name, text, &body, params, &picture.pixels, picture.width, &mut out);
    for (at, (&pixel, &theirs)) in picture.pixels.iter().zip(&out).enumerate() {
        let (x, y) = ((at % picture.width) as i32, (at / picture.width) as i32);
        assert_eq!(of(x, y, pixel), theirs, "{name} {x} {y}");
    }
}

#[test]
fn operators_on_positions_equal_their_twins() {
    for (mean, sigma) in [(0.0, 0.1), (0.3, 10.0), (-0.2, 0.0)] {
        let params = gaussian_noise::Params::new(mean, sigma, [1, 0xffff_fffe]);
        position("GaussianNoise", text!("gaussian_noise"), &params, |x, y, pixel| {
            gaussian_noise::pixel(&params, x, y, pixel)
        });
    }
    for (prob, salt, per_channel) in [(0.05, 0.5, false), (0.4, 0.8, true), (1.0, 1.0, true)] {
        let params = salt_and_pepper::Params::new(prob, salt, per_channel, [9, 8]);
        position("SaltAndPepper", text!("salt_and_pepper"), &params, |x, y, pixel| {
            salt_and_pepper::pixel(&params, x, y, pixel)
        });
    }
    for (tile, ratio, angle, shift) in
        [(100.0, 0.5, 0.0, [0.0, 0.0]), (17.0, 0.3, 0.7, [5.0, -3.5]), (1.0, 1.0, 3.0, [0.0, 0.5])]
    {
        let params = grid_mask::Params::new(tile, ratio, angle, shift, [1, 2, 3]);
        position("GridMask", text!("grid_mask"), &params, |x, y, pixel| {
            grid_mask::pixel(&params, x, y, pixel)
        });
    }
    for (holes, length) in [(0, 9), (1, 30), (8, 101)] {
        let mut rng = SampleRng::new(SampleKey::default(), 0);
        let params = cutout::Params::draw(Size::new(700, 400), holes, length, [7, 8, 9], &mut rng);
        position("Cutout", text!("cutout"), &params, |x, y, pixel| {
            cutout::pixel(&params, x, y, pixel)
        });
    }
}

#[test]
fn random_erasing_equals_its_twin_on_bytes_and_floats() {
    let erase = |std| random_erasing::Params {
        x: 13,
        y: 50,
        right: 600,
        bottom: 390,
        mean: [123.675, 116.28, 103.53],
        std,
        key: [4, 5],
    };
    for params in [erase([0.0; 3]), erase([58.395, 57.12, 57.375])] {
        position("RandomErasing", text!("random_erasing"), &params, |x, y, pixel| {
            random_erasing::pixel(&params, x, y, pixel)
        });
        let input = vec![[0.25f32, -1.0, 3.5]; 700 * 400];
        let mut out = vec![[0f32; 3]; input.len()];
        let body = "((Floats3*)call.out)[i] = RandomErasing::of(p, (int)(i % call.width), (int)(i / call.width), ((const Floats3*)call.in)[i]);";
        run("RandomErasing", text!("random_erasing"), body, &params, &input, 700, &mut out);
        for (at, theirs) in out.iter().enumerate() {
            let (x, y) = ((at % 700) as i32, (at / 700) as i32);
            let ours = random_erasing::float_pixel(&params, x, y, input[at]);
            assert_eq!(ours.map(f32::to_bits), theirs.map(f32::to_bits), "{x} {y}");
        }
    }
}

fn stencil<P: Pod>(name: &str, text: &str, params: &P, of: impl Fn(&[[u8; 3]; 9]) -> [u8; 3]) {
    let picture = Picture::waves(211, 97, 8);
    let places = (1..96).flat_map(|y| (1..210).map(move |x| (x, y)));
    let input: Vec<[[u8; 3]; 9]> = places.map(|(x, y)| picture.around(x, y)).collect();
    let mut out = vec![[0u8; 3]; input.len()];
    let body = format!("((Bytes*)call.out)[i] = {name}::of(p, ((const Bytes(*)[9])call.in)[i]);");
    run(name, text, &body, params, &input, 0, &mut out);
    for (around, &theirs) in input.iter().zip(&out) {
        assert_eq!(of(around), theirs, "{name} {around:?}");
    }
}

#[test]
fn stencils_equal_their_twins() {
    for factor in [0.0, 0.4, 1.0, 2.5] {
        let params = sharpness::Params { factor, padding: 0 };
        stencil("Sharpness", text!("sharpness"), &params, |it| sharpness::pixel(&params, it));
        let params = sharpen::Params { amount: factor, padding: 0 };
        stencil("Sharpen", text!("sharpen"), &params, |it| sharpen::pixel(&params, it));
    }
}
