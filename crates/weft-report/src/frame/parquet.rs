//! Frames as Parquet files.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::{Frame, Values};

/// Maximum number of rows in a Parquet row group, which a reader holds in memory.
const MAX_ROW_GROUP: usize = 1 << 20;

impl Frame {
    /// Returns an uncompressed Parquet file with dictionary-encoded names.
    ///
    /// # Panics
    /// Never, because writing to memory cannot fail.
    pub fn to_parquet(&self) -> Vec<u8> {
        let mut file = vec![];
        self.write_parquet(&mut file).expect("the columns fit the schema made from them");
        file
    }

    fn write_parquet(&self, file: &mut Vec<u8>) -> Result<(), ParquetError> {
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(file, Arc::new(self.schema()?), properties)?;
        for first in (0..self.rows).step_by(MAX_ROW_GROUP) {
            let rows = first..self.rows.min(first + MAX_ROW_GROUP);
            let mut group = writer.next_row_group()?;
            for (_, values) in &self.columns {
                let mut column = group.next_column()?.expect("one for each of the schema");
                write_column(&mut column, values, rows.clone())?;
                column.close()?;
            }
            group.close()?;
        }
        writer.close().map(|_| ())
    }

    fn schema(&self) -> Result<Type, ParquetError> {
        let field = |(name, values): &(String, Values)| {
            let (physical, logical, repetition) = match values {
                Values::Text(_) => {
                    (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED)
                }
                Values::Whole(_) => (Physical::INT64, None, Repetition::REQUIRED),
                Values::Real(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
            };
            let field = Type::primitive_type_builder(name, physical);
            field.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
        };
        let fields = self.columns.iter().map(field).collect::<Result<_, _>>()?;
        Type::group_type_builder("rows").with_fields(fields).build()
    }
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    values: &Values,
    rows: Range<usize>,
) -> Result<(), ParquetError> {
    match values {
        Values::Text(values) => {
            let texts = values[rows].iter().map(|text| ByteArray::from(text.as_str()));
            let texts: Vec<ByteArray> = texts.collect();
            column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
        }
        Values::Whole(values) => {
            column.typed::<Int64Type>().write_batch(&values[rows], None, None)?;
        }
        Values::Real(values) => {
            // Definition level 1 marks a value that is present.
            let levels = values[rows.clone()].iter().map(|value| i16::from(!value.is_nan()));
            let levels: Vec<i16> = levels.collect();
            let present = values[rows].iter().copied().filter(|value| !value.is_nan());
            let present: Vec<f64> = present.collect();
            column.typed::<DoubleType>().write_batch(&present, Some(&levels), None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    fn frame() -> Frame {
        Frame::new(vec![
            ("balancer".into(), Values::Text(vec!["ecmp".into(), "a, \"b\"".into()])),
            ("bytes".into(), Values::Whole(vec![1, -2])),
            ("slowdown".into(), Values::Real(vec![1.5, f64::NAN])),
        ])
    }

    #[test]
    fn a_parquet_file_reads_back_and_is_the_same_bytes_each_time() {
        let file = frame().to_parquet();
        assert_eq!(file, frame().to_parquet());
        let reader = SerializedFileReader::new(Bytes::from(file)).unwrap();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        let want = [
            "{balancer: \"ecmp\", bytes: 1, slowdown: 1.5}",
            "{balancer: \"a, \"b\"\", bytes: -2, slowdown: null}",
        ];
        assert_eq!(rows, want);
    }

    #[test]
    fn a_frame_without_rows_is_a_file_too() {
        let frame = Frame::new(vec![("bytes".into(), Values::Whole(vec![]))]);
        let reader = SerializedFileReader::new(Bytes::from(frame.to_parquet())).unwrap();
        assert_eq!(reader.get_row_iter(None).unwrap().count(), 0);
    }
}
