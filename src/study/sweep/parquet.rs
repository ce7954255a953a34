//! The table as Parquet, for tools that read columns.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// A Parquet file of one row group. A column of whole numbers is INT64, of numbers DOUBLE, else UTF-8; empty cells are
/// null.
pub(super) fn table(columns: &[String], rows: &[Vec<String>]) -> Vec<u8> {
    written(columns, rows).expect("a vector takes every byte, and every cell fits its column's type")
}

/// The type that holds every cell of a column as it is.
fn physical(rows: &[Vec<String>], column: usize) -> Physical {
    let cells = || rows.iter().map(|row| row[column].as_str()).filter(|cell| !cell.is_empty());
    // Words such as `inf` are no numbers here, and a whole number that an f64 cannot hold stays text.
    let is_real = |cell: &str| match cell.parse::<i128>() {
        Ok(whole) => (whole as f64) as i128 == whole,
        Err(_) => cell.parse::<f64>().is_ok_and(f64::is_finite),
    };
    if cells().next().is_some() && cells().all(|cell| cell.parse::<i64>().is_ok()) {
        Physical::INT64
    } else if cells().next().is_some() && cells().all(is_real) {
        Physical::DOUBLE
    } else {
        Physical::BYTE_ARRAY
    }
}

fn written(columns: &[String], rows: &[Vec<String>]) -> Result<Vec<u8>, ParquetError> {
    let types: Vec<Physical> = (0..columns.len()).map(|column| physical(rows, column)).collect();
    let fields = columns.iter().zip(&types).map(|(name, &physical)| {
        let text = (physical == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        field.with_logical_type(text).build().map(Arc::new)
    });
    let schema = Type::group_type_builder("study").with_fields(fields.collect::<Result<_, _>>()?).build()?;
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(WriterProperties::default()))?;
    let mut group = file.next_row_group()?;
    for (column, physical) in types.into_iter().enumerate() {
        let Some(mut writer) = group.next_column()? else { break };
        let present: Vec<i16> = rows.iter().map(|row| i16::from(!row[column].is_empty())).collect();
        let cells = rows.iter().map(|row| row[column].as_str()).filter(|cell| !cell.is_empty());
        match physical {
            Physical::INT64 => {
                let values: Vec<i64> = cells.filter_map(|cell| cell.parse().ok()).collect();
                writer.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
            }
            Physical::DOUBLE => {
                let values: Vec<f64> = cells.filter_map(|cell| cell.parse().ok()).collect();
                writer.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            }
            _ => {
                let values: Vec<ByteArray> = cells.map(ByteArray::from).collect();
                writer.typed::<ByteArrayType>().write_batch(&values, Some(&present), None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.into_inner()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn a_table_reads_back() {
        let columns = ["n", "x", "word"].map(str::to_owned);
        let rows = [["1", "0.5", "a"], ["", "2", ""], ["-3", "1e9", "c,d"]].map(|row| row.map(str::to_owned).to_vec());
        let read = |columns: &[String], rows: &[Vec<String>]| -> Vec<String> {
            let reader = SerializedFileReader::new(bytes::Bytes::from(table(columns, rows))).unwrap();
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
        };
        let odd = [["9007199254740993", "1", "inf"], ["0.5", "18446744073709551615", "1"]];
        let odd = odd.map(|row| row.map(str::to_owned).to_vec());
        let kept = r#"{n: "9007199254740993", x: "1", word: "inf"}"#;
        assert_eq!(read(&columns, &odd)[0], kept, "what a double cannot hold is text");
        let read = read(&columns, &rows);
        assert_eq!(
            read,
            ["{n: 1, x: 0.5, word: \"a\"}", "{n: null, x: 2.0, word: null}", "{n: -3, x: 1000000000.0, word: \"c,d\"}",]
        );
    }
}
