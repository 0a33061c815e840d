//! Uses `feedwater::testing` as another crate would. Each operator here has one planted error,
//! which the parity check must detect and locate.

use crate::common::words::has_words;
use feedwater::internals::geometry::{Roi, Size};
use feedwater::internals::image::{HostImage, PixelType};
use feedwater::op::custom::{Cuda, Draw, FieldError, ImageFormula, Kind, Kinds, Wanted};
use feedwater::op::{Normalize, Operator};
use feedwater::testing::{Implementation, Parity, ParityError, check_operator};

/// Planted errors of [`Dimmed`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u64)]
enum DataError {
    Nothing,
    /// The fast path (CPU transform) gives another blue value at the pixel (2, 3) than the
    /// reference.
    FastPath,
    /// The fast path gives another red value than the reference at the pixel (1, 0), next to a
    /// corner.
    Corner,
    /// The operator draws a look-up table, but does not declare this kind of action.
    Kinds,
    /// The demanded part of the input is one column too wide.
    Demand,
    /// The declared output size differs from the actual one.
    Size,
    /// The operator's setting is invalid.
    Setting,
}

/// An operator for the CPU that halves every value. Its field selects the planted error.
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
    fn name(&self) -> &'static str {
        "dimmed"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        match self.0 {
            DataError::Kinds => draw.table(|_, byte| byte / 2),
            fault => draw.image::<Self>(&(fault as u64), draw.size()),
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        match self.0 {
            DataError::Setting => Err(FieldError::new("factor", "must be 2")),
            _ => Ok(()),
        }
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        match self.0 {
            DataError::Size => Some(Size::new(7, 7)),
            _ => input,
        }
    }
}

impl ImageFormula for Dimmed {
    type Params = u64;

    fn reference(_: &u64, src: &HostImage, out: &mut HostImage) {
        each(src, out, |_, _, pixel| pixel.map(|byte| byte / 2));
    }

    fn apply(fault: &u64, src: &HostImage, out: &mut HostImage) {
        each(src, out, |x, y, pixel| {
            let mut dimmed = pixel.map(|byte| byte / 2);
            match (x, y) {
                (2, 3) if *fault == DataError::FastPath as u64 => dimmed[2] += 1,
                (1, 0) if *fault == DataError::Corner as u64 => dimmed[0] += 1,
                _ => {}
            }
            dimmed
        });
    }

    fn pixels(input: PixelType) -> Option<PixelType> {
        (input == PixelType::U8).then_some(input)
    }

    fn demand(fault: &mut u64, wanted: Wanted) -> Roi {
        let wider = u32::from(*fault == DataError::Demand as u64);
        Roi { width: wanted.output.width + wider, ..wanted.output }
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
        (Implementation::FastPath, Size::new(13, 17), 2, 3)
    );
}

#[test]
fn errors_of_each_form_are_detected() {
    let found = difference(check_operator(Dimmed(DataError::Corner)));
    assert_eq!((found.x, found.y, found.channel), (1, 0, 0));
    for (fault, values) in [
        (DataError::Demand, &["2x1+0+0", "1x1"][..]),
        (DataError::Size, &["Dimmed(Size)", "fixed_output", "7x7", "draw", "1x1"]),
        (DataError::Kinds, &["Dimmed(Kinds)", "Image", "draw", "Table"]),
        // These are words of the message of the operator's own check.
        (DataError::Setting, &["dimmed.factor", "must be 2"]),
    ] {
        let Err(ParityError::Invalid { problem, case }) = check_operator(Dimmed(fault)) else {
            panic!("{fault:?}")
        };
        assert!(has_words(&problem, values) && case.contains("Dimmed"), "{problem}; {case}");
    }
    let error =
        Parity::new(Normalize::IMAGENET).then(Dimmed(DataError::Nothing)).run().unwrap_err();
    assert!(has_words(&error.to_string(), &["dimmed", "bytes", "normalize"]), "{error}");
}

/// An operator that inverts images. Its CUDA source is correct if `RIGHT` is true. Otherwise the
/// source is wrong for white.
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
    fn name(&self) -> &'static str {
        "inverted"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.image::<Self>(&0, draw.size());
    }
}

impl<const RIGHT: bool> ImageFormula for Inverted<RIGHT> {
    type Params = u64;
    const CUDA: Option<Cuda> = Some(Cuda::new("Inverted", if RIGHT { INVERTED } else { WRONG }));

    fn reference(_: &u64, src: &HostImage, out: &mut HostImage) {
        each(src, out, |_, _, pixel| pixel.map(|byte| 255 - byte));
    }

    fn pixels(input: PixelType) -> Option<PixelType> {
        (input == PixelType::U8).then_some(input)
    }
}

#[test]
fn errors_of_the_cuda_text_are_detected() {
    let report = check_operator(Inverted::<true>).unwrap();
    assert_eq!(report.no_host_kernel, None);
    let found = difference(check_operator(Inverted::<false>));
    assert_eq!((found.form, found.channel), (Implementation::HostProgram, 1));
    assert_eq!((found.expected, found.found), (0.0, 1.0));
    // The message contains the implementation, the image size, and both values.
    let size = found.input.to_string();
    let text = ParityError::Differs(Box::new(found)).to_string();
    assert!(text.contains(Implementation::HostProgram.name()), "{text}");
    assert!(has_words(&text, &[&size, "1", "0"]), "{text}");
}

/// An operator whose CUDA source uses an undefined name, so it does not compile.
#[derive(Clone, Copy, Debug)]
struct Unfinished;

impl Operator for Unfinished {
    fn name(&self) -> &'static str {
        "unfinished"
    }

    fn kinds(&self) -> Kinds {
        Kinds::exactly([Kind::image::<Self>()])
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        draw.image::<Self>(&0, draw.size());
    }
}

impl ImageFormula for Unfinished {
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

    fn reference(_: &u64, src: &HostImage, out: &mut HostImage) {
        each(src, out, |_, _, pixel| pixel);
    }
}

#[test]
fn a_cuda_text_that_does_not_compile_is_an_error_with_the_log() {
    let Err(ParityError::Compile { log }) = check_operator(Unfinished) else { panic!() };
    assert!(log.contains("unfinished.cu"), "{log}");
}
