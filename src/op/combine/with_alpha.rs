//! `WithAlpha`: an operator with other settings for the alpha channel.

use std::sync::Arc;

use crate::geometry::Size;
use crate::image::{PixelFormat, PixelType};
use crate::op::{Bounds, Draw, FieldError, Kinds, Operator};

/// An operator with one value per channel, such as a fill colour, for images with an alpha channel
/// ([`PixelFormat::U8x4`]). In TOML and Python it is an operator with four values.
///
/// The two operators may differ only in such values. They draw the same random numbers.
///
/// ```
/// use feedwater::op::{Chain, Normalize, WithAlpha};
///
/// // mean = [0.485, 0.456, 0.406, 0.0], std = [0.229, 0.224, 0.225, 1.0]
/// let of_alpha = Normalize { mean: [0.0; 3], std: [1.0; 3] };
/// let chain = Chain::new().then(WithAlpha::new(Normalize::IMAGENET, of_alpha));
/// ```
#[derive(Clone, Debug)]
pub struct WithAlpha {
    colours: Arc<dyn Operator>,
    alpha: Arc<dyn Operator>,
}

impl WithAlpha {
    /// Runs `colours` on red, green and blue, and `alpha` on the alpha channel.
    pub fn new(colours: impl Operator, alpha: impl Operator) -> Self {
        Self::of(Arc::new(colours), Arc::new(alpha))
    }

    /// Like [`new`](Self::new), for operators of unknown type.
    pub fn of(colours: Arc<dyn Operator>, alpha: Arc<dyn Operator>) -> Self {
        Self { colours, alpha }
    }
}

impl Operator for WithAlpha {
    fn name(&self) -> &'static str {
        self.colours.name()
    }

    fn kinds(&self) -> Kinds {
        self.colours.kinds()
    }

    fn draw(&self, draw: &mut Draw<'_>) {
        match draw.is_alpha {
            true => self.alpha.draw(draw),
            false => self.colours.draw(draw),
        }
    }

    fn check(&self) -> Result<(), FieldError> {
        let [colours, alpha] = [&self.colours, &self.alpha].map(|it| it.name());
        if colours != alpha {
            let problem =
                format!("is {colours} for colours and {alpha} for alpha; use one operator");
            return Err(FieldError::new("op", problem));
        }
        self.colours.check()?;
        self.alpha.check().map_err(of_alpha)
    }

    fn pixels(&self, input: PixelType) -> Result<PixelType, String> {
        self.alpha.pixels(input)?;
        self.colours.pixels(input)
    }

    fn channels(&self, input: usize) -> Result<usize, String> {
        self.alpha.channels(1)?;
        self.colours.channels(3)?;
        Ok(input)
    }

    fn for_format(&self, format: PixelFormat) -> Result<Option<Arc<dyn Operator>>, FieldError> {
        if !format.has_alpha() {
            let problem = format!(
                "is {} with four values per setting, but {} pixels have {}; write one number{}",
                self.name(),
                format.name(),
                if format.channels() == 1 { "one channel" } else { "three channels" },
                if format.channels() == 1 { "" } else { " or three" },
            );
            return Err(FieldError::new("op", problem));
        }
        let [colours, alpha] =
            [self.colours.for_format(format)?, self.alpha.for_format(format).map_err(of_alpha)?];
        let (None, None) = (&colours, &alpha) else {
            let colours = colours.unwrap_or_else(|| self.colours.clone());
            let alpha = alpha.unwrap_or_else(|| self.alpha.clone());
            return Ok(Some(Arc::new(Self { colours, alpha })));
        };
        Ok(None)
    }

    fn fixed_output(&self, input: Option<Size>) -> Option<Size> {
        self.colours.fixed_output(input)
    }

    fn largest_output(&self, input: Size) -> Size {
        self.colours.largest_output(input)
    }

    fn largest_alone(&self, input: Size) -> Size {
        self.colours.largest_alone(input)
    }

    fn is_random(&self) -> bool {
        self.colours.is_random()
    }

    fn outputs(&self) -> u32 {
        self.colours.outputs()
    }

    fn reads_boxes(&self) -> bool {
        self.colours.reads_boxes()
    }

    fn coefficients(&self, bounds: Bounds) -> usize {
        self.colours.coefficients(bounds)
    }
}

/// Error of the operator for the alpha channel, whose values are the fourth of each list.
fn of_alpha(error: FieldError) -> FieldError {
    let field = error.field.split('[').next().unwrap_or_default();
    FieldError::new(format!("{field}[3]"), error.problem)
}
