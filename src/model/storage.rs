//! Formats that the matrices and caches of a model are stored in, as options name them.

/// How second operands are stored, where not in the data type of products.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Storage {
    /// The layers' matrices.
    pub weights: Option<StorageFormat>,
    /// Decoding: keys and values of the context.
    pub cache: Option<StorageFormat>,
}

/// A format of `storage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageFormat {
    /// Its name.
    pub format: String,
    /// Elements that share a scale, if not as usual.
    pub group: Option<u64>,
}

impl std::str::FromStr for StorageFormat {
    type Err = String;

    /// `FORMAT` or `FORMAT:GROUP`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (format, group) = text.split_once(':').map_or((text, None), |(format, group)| (format, Some(group)));
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if format.is_empty() || !format.chars().all(is_word) {
            return Err("expected FORMAT or FORMAT:GROUP, such as int4:128".to_owned());
        }
        let group = group.map(|group| {
            group.parse().map_err(|_| format!("expected a count of elements behind `:`, found {group:?}"))
        });
        Ok(Self { format: format.to_owned(), group: group.transpose()? })
    }
}

impl StorageFormat {
    /// The field of a tensor.
    pub(super) fn field(&self) -> String {
        let group = self.group.map_or_else(String::new, |group| format!(", group = {group}"));
        format!("\nstorage = {{ format = {:?}{group} }}", self.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_a_format_and_a_group() {
        let int4 = StorageFormat { format: "int4".to_owned(), group: Some(128) };
        assert_eq!("int4:128".parse(), Ok(int4.clone()));
        assert_eq!(int4.field(), "\nstorage = { format = \"int4\", group = 128 }");
        assert_eq!("mxfp4".parse(), Ok(StorageFormat { format: "mxfp4".to_owned(), group: None }));
        for wrong in ["", ":4", "int4:", "int4:-1", "int 4", "int4:128:2", "\""] {
            assert!(wrong.parse::<StorageFormat>().is_err(), "{wrong}");
        }
    }
}
