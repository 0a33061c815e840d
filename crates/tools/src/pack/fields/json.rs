//! Finds the text of a member in the text of a JSON object.

use feedwater::error::{DataError, Reason};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Returns the text of the member `name`. `None` if the object does not have it, or if the text is
/// null.
///
/// # Errors
///
/// [`Reason::Field`] if the text is not a JSON object, or has the member twice.
pub fn member<'a>(object: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, DataError> {
    let wrong = || DataError::new(Reason::Field, "the field is not in a JSON object");
    let mut rest = object.trim_ascii();
    if rest == b"null" {
        return Ok(None);
    }
    rest = rest.strip_prefix(b"{").ok_or_else(wrong)?.trim_ascii_start();
    let mut found = None;
    while !rest.starts_with(b"}") {
        let (key, _, after) = value::<String>(rest).ok_or_else(wrong)?;
        rest = after.strip_prefix(b":").ok_or_else(wrong)?;
        let (_, text, after) = value::<IgnoredAny>(rest).ok_or_else(wrong)?;
        if key == name && found.replace(text).is_some() {
            let problem = format!("the member {name:?} is given twice");
            return Err(DataError::new(Reason::Field, problem));
        }
        rest = match after.strip_prefix(b",") {
            Some(rest) => rest.trim_ascii_start(),
            None if after.starts_with(b"}") => after,
            None => return Err(wrong()),
        };
    }
    Ok(found)
}

/// Parses the value at the start of a text. Returns it with its own text and the text after it,
/// both without blanks around them.
fn value<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<(T, &'a [u8], &'a [u8])> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<T>();
    let value = values.next()?.ok()?;
    let (own, after) = text.split_at_checked(values.byte_offset())?;
    Some((value, own.trim_ascii(), after.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_member_is_unchanged() {
        let object = br#" {"a" : [1, 2.50] ,"b\n":"x\"}","c": null, "d":{"a": 7}, "e":1e3} "#;
        for (name, text) in [
            ("a", Some(&b"[1, 2.50]"[..])),
            ("b\n", Some(br#""x\"}""#)),
            ("c", Some(b"null")),
            ("d", Some(br#"{"a": 7}"#)),
            ("e", Some(b"1e3")),
            ("f", None),
        ] {
            assert_eq!(member(object, name).unwrap(), text, "{name:?}");
        }
        assert_eq!(member(b"{}", "a").unwrap(), None);
        assert_eq!(member(b"null", "a").unwrap(), None);
    }

    #[test]
    fn wrong_objects_are_errors() {
        for object in
            ["", "{", "[1]", "{\"a\"}", "{\"a\":}", "{\"a\":1 2}", "{\"a\":1,\"a\":2}", "{\"a\":1"]
        {
            assert!(member(object.as_bytes(), "a").is_err(), "{object}");
        }
    }
}
