//! Error type for a program's `main`.

use std::error::Error as StdError;
use std::fmt;

use super::{Error, escaped};

/// Any error, as the error type of a program's `main`. Rust prints an error that `main` returns in
/// its `Debug` form. The `Debug` form of this type is the message, followed by those underlying
/// errors that the message does not contain.
///
/// ```no_run
/// fn main() -> Result<(), feedwater::MainError> {
///     let pipeline = feedwater::Pipeline::from_file("pipeline.toml")?;
///     let wanted = std::fs::read_to_string("epochs.txt")?;
///     let mut loader = pipeline.builder()?.epochs(Some(wanted.trim().parse()?)).build()?;
///     loader.epoch().try_for_each(|batch| batch.map(drop))?;
///     Ok(())
/// }
/// ```
pub struct MainError(Box<dyn StdError>);

impl<E: Into<Box<dyn StdError>>> From<E> for MainError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for MainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut source = self.0.source();
        while let Some(error) = source {
            let behind = error.to_string();
            if !text.contains(&behind) {
                text += &format!(": {behind}");
            }
            source = error.source();
        }
        match self.0.downcast_ref::<Error>() {
            // The text is already escaped. It may have several lines, such as a compiler's log.
            Some(error) => {
                f.write_str(&text)?;
                let excerpt = error.location().map(|it| it.excerpt()).unwrap_or_default();
                if excerpt.is_empty() { Ok(()) } else { write!(f, "\n{excerpt}") }
            }
            None => f.write_str(&escaped(&text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn an_error_of_main_is_printed_as_its_message() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let error = Error::io("data/train", &missing);
        let shown = format!("Error: {:?}", MainError::from(error.clone()));
        assert_eq!(shown, format!("Error: {error}"));
        assert!(!shown.contains(['{', '\n']), "{shown}");
        let parsed = "x".parse::<u32>().unwrap_err();
        assert_eq!(format!("{:?}", MainError::from(parsed.clone())), parsed.to_string());
        assert_eq!(format!("{:?}", MainError::from("name a\nfolder")), "name a\\nfolder");
        let behind = io::Error::other(io::Error::other(parsed.clone()));
        assert_eq!(format!("{:?}", MainError::from(behind)), parsed.to_string());
    }
}
