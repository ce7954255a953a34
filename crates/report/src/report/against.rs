//! What stands beside the first chip of a comparison: something for each further chip.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Something of every chip of `--against`, in the order in which they were given.
///
/// In JSON that of the first stands under `against`, and those of others in a list under `against_further`, which is left out where
/// there are none: a reader of two chips finds what it looks for whether there are more or not.
#[derive(Debug, Clone)]
pub struct Against<T>(pub Vec<T>);

impl<T> Default for Against<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Serialize> Serialize for Against<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some((first, further)) = self.0.split_first() {
            map.serialize_entry("against", first)?;
            if !further.is_empty() {
                map.serialize_entry("against_further", further)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stands_alone_and_others_in_a_list() {
        let json = |of: &[u32]| serde_json::to_string(&Against(of.to_vec())).unwrap();
        assert_eq!(json(&[]), "{}");
        assert_eq!(json(&[1]), r#"{"against":1}"#);
        assert_eq!(json(&[1, 2, 3]), r#"{"against":1,"against_further":[2,3]}"#);
    }
}
