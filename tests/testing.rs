//! `feedwater::testing` as used by another crate: it must detect every planted error and locate it.

#[path = "../crates/insight/tests/words/mod.rs"]
mod words;

use feedwater::geometry::{Roi, Size};
use feedwater::image::{HostImage, PixelType};
use feedwater::op::custom::{Bounds, Cuda, FastPath, FieldError, Spatial, Trace, Wanted};
use feedwater::op::{Fusion, Normalize, Operator, Resize};
use feedwater::random::SampleRng;
use feedwater::testing::{Form, Parity, ParityError, check_operator};
use words::has_words;

/// Errors of [`Dimmed`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum DataError {
    Nothing,
    /// The fast path has another blue value at the pixel (2, 3).
    FastPath,
    /// The fast path starts at the corner of its window, not of the image.
    Corner,
    /// The fusion claims to mirror.
    Fusion,
    /// The demand is one column too wide.
    Demand,
    /// The stated size differs from the actual one.
    Size,
    /// The setting is invalid.
    Setting,
}

/// Halves every value, on the CPU only.
#[derive(Clone, Copy, Debug)]
struct Dimmed(DataError);

fn each(src: &HostImage, out: &mut HostImage, value: impl Fn(u32, u32, [u8; 3]) -> [u8; 3]) {
    let (HostImage::U8(src), HostImage::U8(out)) = (src, out) else { panic!("bytes only") };
    let window = out.window();
    for y in window.y..window.bottom() {
        for x in window.x..window.right() {
            out.set_pixel(x, y, value(x, y, src.pixel(x, y)));
        }
    }
}

impl Operator for Dimmed {
    const NAME: &'static str = "dimmed";
    type Params = ();

    fn prepare(&self, input: Size, _: &mut SampleRng) -> (Size, ()) {
        (input, ())
    }

    fn reference(_: &(), _: &[i32], src: &HostImage, out: &mut HostImage) {
        each(src, out, |_, _, pixel| pixel.map(|byte| byte / 2));
    }

    fn check(&self) -> Result<(), FieldError> {
        match self.0 {
            DataError::Setting => Err(FieldError::new("factor", "must be 2")),
            _ => Ok(()),
        }
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        match input {
            PixelType::U8 => Ok(input),
            PixelType::F32 => Err("dimmed works on bytes".into()),
        }
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        match self.0 {
            DataError::Size => Some(Size::new(7, 7)),
            _ => input,
        }
    }

    fn spatial(&self) -> Option<&dyn Spatial<()>> {
        (self.0 == DataError::Demand).then_some(self)
    }

    fn fast_path(&self) -> Option<&dyn FastPath<()>> {
        Some(self)
    }
}

impl Spatial<()> for Dimmed {
    fn demand(&self, _: &mut (), wanted: Wanted, _: &mut Vec<i32>) -> Roi {
        Roi { width: wanted.output.width + 1, ..wanted.output }
    }

    fn trace(&self, _: &(), _: &mut Trace) {}

    fn table_len(&self, _: Bounds) -> usize {
        0
    }
}

impl FastPath<()> for Dimmed {
    fn apply(&self, _: &(), _: &[i32], src: &HostImage, out: &mut HostImage) {
        let corner = (src.window().x, src.window().y);
        each(src, out, |x, y, pixel| {
            let mut dimmed = pixel.map(|byte| byte / 2);
            match self.0 {
                DataError::FastPath if (x, y) == (2, 3) => dimmed[2] += 1,
                DataError::Corner if (x, y) == (1, 0) && corner == (0, 0) => dimmed[0] += 1,
                _ => {}
            }
            dimmed
        });
    }

    fn fusion(&self, _: &()) -> Fusion {
        match self.0 {
            DataError::Fusion => Fusion::Flip { horizontal: true, vertical: false },
            _ => Fusion::None,
        }
    }
}

fn difference(result: Result<impl std::fmt::Debug, ParityError>) -> feedwater::testing::Difference {
    match result {
        Err(ParityError::Differs(difference)) => *difference,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_correct_operator_passes_on_the_cpu_alone() {
    let report = check_operator(Dimmed(DataError::Nothing)).unwrap();
    assert!(report.cases > 50, "{report}");
    assert!(has_words(report.no_host_kernel.as_deref().unwrap(), &["CUDA"]), "{report}");
    assert_eq!(report.no_host_kernel, report.no_device);
}

#[test]
fn the_first_value_that_differs_is_named() {
    let found = difference(check_operator(Dimmed(DataError::FastPath)));
    assert_eq!(
        (found.form, found.input, found.x, found.y),
        (Form::FastPath, Size::new(13, 17), 2, 3)
    );
}

#[test]
fn errors_of_each_form_are_detected() {
    let found = difference(check_operator(Dimmed(DataError::Corner)));
    assert_eq!((found.x, found.y, found.channel), (1, 0, 0));
    let found = difference(Parity::new(Resize::to(9, 8)).then(Dimmed(DataError::Fusion)).run());
    assert_eq!(found.form, Form::Rows);
    for (fault, values) in [
        (DataError::Demand, &["Dimmed(Demand)", "2x1+0+0", "1x1"][..]),
        (DataError::Size, &["Dimmed(Size)", "fixed_output", "7x7", "prepare", "1x1"]),
        // The message is that of the operator.
        (DataError::Setting, &["dimmed.factor", "must be 2"]),
    ] {
        let Err(ParityError::Invalid { problem, case }) = check_operator(Dimmed(fault)) else {
            panic!("{fault:?}")
        };
        assert!(has_words(&problem, values) && case.contains("Dimmed"), "{problem}; {case}");
    }
    let error =
        Parity::new(Normalize::IMAGENET).then(Dimmed(DataError::Nothing)).run().unwrap_err();
    assert!(error.to_string().starts_with("dimmed works on bytes"), "{error}");
}

/// Inverts the image. Its CUDA text is correct if `RIGHT`, and otherwise wrong for white.
#[derive(Clone, Copy, Debug)]
struct Inverted<const RIGHT: bool>;

const INVERTED: &str = "
struct InvertedParams { int unused[2]; };
template <class Src> struct Inverted {
    typedef Bytes Pixel;
    Src src;
    InvertedParams p;
    __device__ Pixel at(int x, int y) const {
        const Bytes pixel = src.at(x, y);
        const Bytes out = {(unsigned char)(255 - pixel.r), (unsigned char)(255 - pixel.g), (unsigned char)(255 - pixel.b)};
        return out;
    }
};
";
const WRONG: &str = "
struct InvertedParams { int unused[2]; };
template <class Src> struct Inverted {
    typedef Bytes Pixel;
    Src src;
    InvertedParams p;
    __device__ Pixel at(int x, int y) const {
        const Bytes pixel = src.at(x, y);
        const int green = pixel.g == 255 ? 1 : 255 - pixel.g;
        const Bytes out = {(unsigned char)(255 - pixel.r), (unsigned char)green, (unsigned char)(255 - pixel.b)};
        return out;
    }
};
";

impl<const RIGHT: bool> Operator for Inverted<RIGHT> {
    const NAME: &'static str = "inverted";
    type Params = u64;
    const CUDA: Option<Cuda> = Some(Cuda::new("Inverted", if RIGHT { INVERTED } else { WRONG }));

    fn prepare(&self, input: Size, _: &mut SampleRng) -> (Size, u64) {
        (input, 0)
    }

    fn reference(_: &u64, _: &[i32], src: &HostImage, out: &mut HostImage) {
        each(src, out, |_, _, pixel| pixel.map(|byte| 255 - byte));
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        match input {
            PixelType::U8 => Ok(input),
            PixelType::F32 => Err("inverted works on bytes".into()),
        }
    }
}

#[test]
fn errors_of_the_cuda_text_are_detected() {
    let report = check_operator(Inverted::<true>).unwrap();
    assert_eq!(report.no_host_kernel, None);
    let found = difference(check_operator(Inverted::<false>));
    assert_eq!((found.form, found.channel), (Form::HostKernel, 1));
    assert_eq!((found.expected, found.found), (0.0, 1.0));
    // The form, the size, the channel, and both values.
    let size = found.input.to_string();
    let text = ParityError::Differs(Box::new(found)).to_string();
    assert!(text.contains(Form::HostKernel.name()), "{text}");
    assert!(has_words(&text, &[&size, "1", "0"]), "{text}");
}

/// An operator whose CUDA text uses an undefined name.
#[derive(Clone, Copy, Debug)]
struct Unfinished;

impl Operator for Unfinished {
    const NAME: &'static str = "unfinished";
    type Params = u64;
    const CUDA: Option<Cuda> = Some(Cuda::new(
        "Unfinished",
        "template <class Src> struct Unfinished {
    typedef Bytes Pixel;
    Src src;
    unsigned long long p;
    __device__ Pixel at(int x, int y) const { return missing; }
};",
    ));

    fn prepare(&self, input: Size, _: &mut SampleRng) -> (Size, u64) {
        (input, 0)
    }

    fn reference(_: &u64, _: &[i32], src: &HostImage, out: &mut HostImage) {
        each(src, out, |_, _, pixel| pixel);
    }
}

#[test]
fn a_cuda_text_that_does_not_compile_is_an_error_with_the_log() {
    let Err(ParityError::Compile { log }) = check_operator(Unfinished) else { panic!() };
    assert!(log.contains("unfinished.cu"), "{log}");
}
