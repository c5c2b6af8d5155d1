//! A table for programs: columns of numbers and names, written as CSV or Parquet.

#[cfg(feature = "files")]
mod parquet;

/// A set of columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    columns: Vec<(String, Values)>,
    rows: usize,
}

/// The values of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// A column of names.
    Text(Vec<String>),
    /// A column of counts or other integers.
    Whole(Vec<i64>),
    /// A column of measured values; NaN marks a missing value.
    Real(Vec<f64>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Real(values) => values.len(),
        }
    }
}

impl Frame {
    /// Returns a frame of these columns. Their names are keys, with the unit as the last word.
    ///
    /// # Panics
    /// Panics if the columns differ in length.
    pub fn new(columns: Vec<(String, Values)>) -> Self {
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        let equal = columns.iter().all(|(_, values)| values.len() == rows);
        assert!(equal, "all columns must have the same length");
        Self { columns, rows }
    }

    /// Returns the columns in order, each with its name.
    pub fn into_columns(self) -> Vec<(String, Values)> {
        self.columns
    }

    /// Returns comma-separated values (RFC 4180). A missing value is an empty field.
    ///
    /// # Panics
    /// Never, because writing to memory cannot fail.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(vec![]);
        let in_memory = "writing to memory cannot fail";
        writer.write_record(self.columns.iter().map(|(name, _)| name)).expect(in_memory);
        for row in 0..self.rows {
            let field = |values: &Values| match values {
                Values::Text(values) => values[row].clone(),
                Values::Whole(values) => values[row].to_string(),
                Values::Real(values) if values[row].is_nan() => String::new(),
                Values::Real(values) => values[row].to_string(),
            };
            let fields = self.columns.iter().map(|(_, values)| field(values));
            writer.write_record(fields).expect(in_memory);
        }
        let bytes = writer.into_inner().expect(in_memory);
        String::from_utf8(bytes).expect("every field was a string")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_special_characters_and_omits_missing_values() {
        let frame = Frame::new(vec![
            ("balancer".into(), Values::Text(vec!["ecmp".into(), "a, \"b\"".into()])),
            ("bytes".into(), Values::Whole(vec![1, -2])),
            ("slowdown".into(), Values::Real(vec![1.5, f64::NAN])),
        ]);
        let want = "balancer,bytes,slowdown\necmp,1,1.5\n\"a, \"\"b\"\"\",-2,\n";
        assert_eq!(frame.to_csv(), want);
    }
}
