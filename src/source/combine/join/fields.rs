//! Fields of a joined source.

use super::Joined;
use super::key::{Key, MOST_FIELD_BYTES};
use crate::error::{DataError, Result};
use crate::field::{Field, FieldValue};
use crate::source::{Fields, PutField, Source};

/// Which of the two sources has a field.
enum Side<'a> {
    First,
    /// The second source, by the name of the field there.
    Second(&'a str),
    /// Not listed, so a sample of either source may have it.
    Unlisted(&'a str),
}

impl Joined {
    fn side<'a>(&self, name: &'a str) -> Side<'a> {
        if self.own.contains(name) {
            return Side::First;
        }
        let is_joined = |it: &&str| self.joined.iter().any(|field| field.name == **it);
        match name.strip_prefix(&*self.prefix) {
            None => Side::First,
            Some(name) if is_joined(&name) || !self.prefix.is_empty() || self.own.is_empty() => {
                Side::Second(name)
            }
            Some(name) => Side::Unlisted(name),
        }
    }

    /// The fields in `wanted` that the second source may have, with their names there. Each has its
    /// position in `wanted`.
    fn of_second<'a>(&self, wanted: &[&'a str]) -> (Vec<usize>, Vec<&'a str>) {
        let names = wanted.iter().enumerate().filter_map(|(number, name)| match self.side(name) {
            Side::First => None,
            Side::Second(name) | Side::Unlisted(name) => Some((number, name)),
        });
        names.unzip()
    }

    /// The fields in `wanted` that the first source may have.
    fn of_first<'a>(&self, wanted: &[&'a str]) -> (Vec<usize>, Vec<&'a str>) {
        let is_first = |name: &str| matches!(self.side(name), Side::First | Side::Unlisted(_));
        let names = wanted.iter().enumerate().filter(|(_, name)| is_first(name));
        names.map(|(number, name)| (number, *name)).unzip()
    }
}

impl Fields for Joined {
    /// The fields of the first source, and then those of the second one.
    fn schema(&self) -> Vec<Field> {
        let mut schema = self.first.schema();
        schema.extend(self.joined.iter().map(|field| Field {
            name: format!("{}{}", self.prefix, field.name),
            kind: field.kind,
        }));
        schema
    }

    fn is_open(&self) -> bool {
        [&self.first, &self.second].iter().any(|it| it.fields().is_some_and(|it| it.is_open()))
    }

    fn some_part_has(&self, name: &str) -> bool {
        let has = |source: &dyn Source, name: &str| {
            source.fields().is_some_and(|it| it.some_part_has(name))
        };
        match self.side(name) {
            Side::First => has(&*self.first, name),
            Side::Second(name) => has(&*self.second, name),
            Side::Unlisted(other) => has(&*self.first, name) || has(&*self.second, other),
        }
    }

    fn not_found(&self, index: u64, name: &str) -> Option<String> {
        let (Side::Second(inner) | Side::Unlisted(inner)) = self.side(name) else {
            return self.first.fields()?.not_found(index, name);
        };
        let mut buffer = Vec::new();
        // The sample was just read, so errors are unlikely, and another error is shown for them.
        let key = self.first_key(index, &mut buffer, MOST_FIELD_BYTES).ok()?;
        let Some(key) = key else {
            let within =
                self.key.within().map_or(String::new(), |it| format!(" in the field {it:?}"));
            return Some(format!("the sample has no key{within}, so it has no joined fields"));
        };
        match self.partner(&key, &mut buffer, MOST_FIELD_BYTES).ok()? {
            None => Some(format!(
                "no sample of {} has the key {key:?}; set missing = \"drop\" of the join to leave \
                 out such samples",
                self.second.describe()
            )),
            Some(partner) => {
                let place = self.second.named_location(partner);
                let inner = self.second.fields().and_then(|it| it.not_found(partner, inner));
                let inner = inner.map_or(String::new(), |what| format!(", {what}"));
                Some(format!("joined from {place}{inner}"))
            }
        }
    }

    fn part_without(&self, name: &str) -> Option<String> {
        match self.side(name) {
            Side::First => self.first.fields()?.part_without(name),
            Side::Second(name) => self.second.fields()?.part_without(name),
            Side::Unlisted(_) => None,
        }
    }

    /// Class numbers of the second source are not those of the first one, so they are not
    /// converted.
    fn has_classes(&self, name: &str) -> bool {
        matches!(self.side(name), Side::First)
            && self.first.fields().is_some_and(|it| it.has_classes(name))
    }

    /// All fields of the first source, and the fields that the join has added.
    fn complete_schema(&self) -> Result<Vec<Field>> {
        let mut all = self.first.fields().map_or(Ok(Vec::new()), |it| it.complete_schema())?;
        let joined = self.schema().into_iter();
        let added = joined.filter(|field| all.iter().all(|it| it.name != field.name));
        let added: Vec<Field> = added.collect();
        all.extend(added);
        Ok(all)
    }

    fn file_name(&self, name: &str) -> Option<String> {
        match self.side(name) {
            Side::First => self.first.fields()?.file_name(name),
            Side::Second(inner) => {
                let file = self.second.fields()?.file_name(inner)?;
                Some(format!("{}{file}", self.prefix))
            }
            Side::Unlisted(_) => None,
        }
    }

    fn may_be_image(&self, name: &str) -> bool {
        matches!(self.side(name), Side::First)
            && self.first.fields().is_some_and(|it| it.may_be_image(name))
    }

    /// Equal samples of the first source have equal keys, so they have the same partner. Positions
    /// are not equal.
    fn field_original(&self, index: u64) -> u64 {
        match self.key {
            Key::Index => index,
            Key::Own | Key::Field { .. } => self.first.field_original(index),
        }
    }

    fn field_originals(&self) -> Option<u64> {
        match self.key {
            Key::Index => None,
            Key::Own | Key::Field { .. } => Some(self.first.field_originals()),
        }
    }

    fn prepare(&self, wanted: &[&str]) -> Result<()> {
        let (_, mut first) = self.of_first(wanted);
        let (_, mut second) = self.of_second(wanted);
        if !second.is_empty() {
            first.extend(self.key.within());
            second.extend(self.other_key.within());
        }
        self.first.fields().map_or(Ok(()), |it| it.prepare(&first))?;
        self.second.fields().map_or(Ok(()), |it| it.prepare(&second))
    }

    fn read_fields(
        &self,
        index: u64,
        wanted: &[&str],
        buffer: &mut Vec<u8>,
        limit: u64,
        put: &mut PutField<'_>,
    ) -> Result<(), DataError> {
        let (first, mut names) = self.of_first(wanted);
        let (second, joined) = self.of_second(wanted);
        // The key is read together with the other fields, because a custom source may create the
        // sample for each call.
        let key_field = self.key.within().filter(|_| !joined.is_empty());
        let place = key_field.map(|field| {
            let place = names.iter().position(|name| *name == field);
            place.unwrap_or_else(|| {
                names.push(field);
                names.len() - 1
            })
        });
        let mut is_put = vec![false; wanted.len()];
        let mut key = None;
        if let Some(fields) = self.first.fields().filter(|_| !names.is_empty()) {
            fields.read_fields(index, &names, buffer, limit, &mut |number, value| {
                if place == Some(number) {
                    key = self.key.of_value(value)?;
                }
                let Some(&number) = first.get(number) else { return Ok(()) };
                is_put[number] = true;
                put(number, value)
            })?;
        }
        if joined.is_empty() {
            return Ok(());
        }
        if place.is_none() {
            key = self.first_key(index, buffer, limit)?;
        }
        let Some(key) = key else { return Ok(()) };
        let Some(partner) = self.partner(&key, buffer, limit)? else { return Ok(()) };
        let Some(fields) = self.second.fields() else { return Ok(()) };
        let mut put_joined = |number: usize, value: FieldValue<'_>| match second.get(number) {
            Some(&number) if !is_put[number] => put(number, value),
            _ => Ok(()),
        };
        let read = fields.read_fields(partner, &joined, buffer, limit, &mut put_joined);
        read.map_err(|error| self.in_second(partner, error))
    }
}
