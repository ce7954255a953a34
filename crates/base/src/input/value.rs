//! Values as files give them, before their range is checked.

use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// A table, and nothing else: serde alone would take an array for a struct, field by field.
#[derive(Debug)]
pub struct Table<T>(T);

impl<T> From<T> for Table<T> {
    fn from(of: T) -> Self {
        Self(of)
    }
}

impl<T> Deref for Table<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
            type Value = Table<T>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Table)
            }
        }
        deserializer.deserialize_map(TableVisitor(PhantomData))
    }
}

/// A whole number of any size and sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub i128);

/// A number, possibly not finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Real(pub f64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Count;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Count, E> {
                Ok(Count(value.into()))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
                Ok(Count(value.into()))
            }
            fn visit_i128<E: Error>(self, value: i128) -> Result<Count, E> {
                Ok(Count(value))
            }
            fn visit_u128<E: Error>(self, value: u128) -> Result<Count, E> {
                Ok(Count(i128::try_from(value).unwrap_or(i128::MAX)))
            }
        }
        deserializer.deserialize_any(Whole)
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Real;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Real, E> {
                Ok(Real(value))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Real, E> {
                Ok(Real(value as f64))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Real, E> {
                Ok(Real(value as f64))
            }
            fn visit_i128<E: Error>(self, value: i128) -> Result<Real, E> {
                Ok(Real(value as f64))
            }
            fn visit_u128<E: Error>(self, value: u128) -> Result<Real, E> {
                Ok(Real(value as f64))
            }
        }
        deserializer.deserialize_any(Number)
    }
}
