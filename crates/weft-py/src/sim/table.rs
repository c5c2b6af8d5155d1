//! Tables as columns of Arrow, which pandas, polars, DuckDB and pyarrow read where they are, without a copy.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator,
    RecordBatchOptions, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList, PyString};
use serde_json::Value;
use weft_report::{Cell, Frame, Values};

/// A table of named columns: integers, floating-point numbers or texts, any of which may be missing.
#[pyclass(frozen, module = "weft._weft")]
#[derive(Clone, Debug)]
pub(crate) struct Table(RecordBatch);

impl Table {
    fn new(columns: Vec<(String, ArrayRef)>) -> Self {
        let rows = columns.first().map_or(0, |(_, array)| array.len());
        let field =
            |(name, array): &(String, ArrayRef)| Field::new(name, array.data_type().clone(), true);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options);
        Self(batch.expect("all columns have one length"))
    }

    /// Returns the columns of a frame, whose numbers are moved, not copied. NaN is a missing value.
    pub(super) fn from_frame(frame: Frame) -> Self {
        let array = |values| -> ArrayRef {
            match values {
                Values::Text(values) => Arc::new(StringArray::from(values)),
                Values::Whole(values) => Arc::new(Int64Array::from(values)),
                Values::Real(values) => Arc::new(reals(values)),
            }
        };
        let columns = frame.into_columns().into_iter();
        Self::new(columns.map(|(name, values)| (name, array(values))).collect())
    }

    /// Returns the values of a table for people.
    pub(super) fn from_cells(table: &weft_report::Table) -> Self {
        let column = |(index, column): (usize, &weft_report::Column)| {
            let cells: Vec<&Cell> = table.rows().iter().map(|row| &row[index]).collect();
            (column.key.clone(), array_of(&cells))
        };
        Self::new(table.columns().iter().enumerate().map(column).collect())
    }

    fn columns_by_name(&self) -> impl Iterator<Item = (&str, &ArrayRef)> {
        let batch = &self.0;
        batch.schema_ref().fields().iter().map(|field| field.name().as_str()).zip(batch.columns())
    }
}

/// Returns the array of numbers in which NaN is missing.
fn reals(values: Vec<f64>) -> Float64Array {
    let missing = values.iter().any(|value| value.is_nan());
    let nulls = missing.then(|| values.iter().map(|value| !value.is_nan()).collect());
    Float64Array::new(values.into(), nulls)
}

/// Returns the array of a column's cells: of integers if all are, else of numbers if all are, else of texts.
fn array_of(cells: &[&Cell]) -> ArrayRef {
    let all =
        |is: fn(&Value) -> bool| cells.iter().all(|cell| cell.value.is_null() || is(&cell.value));
    if all(Value::is_i64) {
        return Arc::new(cells.iter().map(|cell| cell.value.as_i64()).collect::<Int64Array>());
    }
    if all(Value::is_number) {
        return Arc::new(cells.iter().map(|cell| cell.value.as_f64()).collect::<Float64Array>());
    }
    let text = |cell: &&Cell| match &cell.value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    Arc::new(cells.iter().map(text).collect::<StringArray>())
}

/// Returns a column of Python's values: integers if all are, else numbers if all are, else texts.
fn array_from(name: &str, values: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let values: Vec<Bound<'_, PyAny>> = values.try_iter()?.collect::<PyResult<_>>()?;
    let present = || values.iter().filter(|value| !value.is_none());
    let kind = if present().all(|value| value.extract::<i64>().is_ok()) {
        DataType::Int64
    } else if present().all(|value| value.is_instance_of::<PyString>()) {
        DataType::Utf8
    } else {
        DataType::Float64
    };
    array_of_kind(&values, &kind).map_err(|error| {
        PyTypeError::new_err(format!(
            "column {name:?}: its values are neither all texts nor all numbers ({error})"
        ))
    })
}

fn array_of_kind(values: &[Bound<'_, PyAny>], kind: &DataType) -> PyResult<ArrayRef> {
    fn all<'py, T: FromPyObjectOwned<'py>>(
        values: &[Bound<'py, PyAny>],
    ) -> PyResult<Vec<Option<T>>> {
        values.iter().map(|value| value.extract().map_err(Into::into)).collect()
    }
    Ok(match kind {
        DataType::Int64 => Arc::new(Int64Array::from(all::<i64>(values)?)),
        DataType::Utf8 => Arc::new(StringArray::from(all::<String>(values)?)),
        _ => Arc::new(Float64Array::from(all::<f64>(values)?)),
    })
}

/// Returns a value as Python's.
fn value_at<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if array.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    let any: &dyn std::any::Any = array.as_any();
    if let Some(values) = any.downcast_ref::<Int64Array>() {
        return Ok(values.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(values) = any.downcast_ref::<Float64Array>() {
        return Ok(values.value(row).into_pyobject(py)?.into_any());
    }
    let values = any.downcast_ref::<StringArray>().expect("the only other type");
    Ok(values.value(row).into_pyobject(py)?.into_any())
}

#[pymethods]
impl Table {
    /// Returns the table of these columns: a sequence of values for each name.
    #[staticmethod]
    fn from_columns(columns: &Bound<'_, PyDict>) -> PyResult<Self> {
        let column = |(name, values): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let name: String = name.extract()?;
            let array = array_from(&name, &values)?;
            Ok((name, array))
        };
        let columns = columns.iter().map(column).collect::<PyResult<Vec<(String, ArrayRef)>>>()?;
        let rows = columns.first().map_or(0, |(_, array)| array.len());
        if let Some((name, array)) = columns.iter().find(|(_, array)| array.len() != rows) {
            return Err(PyValueError::new_err(format!(
                "column {name:?} has {} values, the first has {rows}",
                array.len()
            )));
        }
        Ok(Self::new(columns))
    }

    /// The columns' names, in order.
    #[getter]
    fn columns(&self) -> Vec<&str> {
        self.columns_by_name().map(|(name, _)| name).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// Returns the values of a column.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let found = self.columns_by_name().find(|(column, _)| *column == name);
        let Some((_, array)) = found else {
            let known = self.columns();
            return Err(PyKeyError::new_err(weft_units::unknown_name("column", name, &known)));
        };
        let values = (0..array.len()).map(|row| value_at(py, array, row));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns one dictionary for each row.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let row = |row| {
            let values = PyDict::new(py);
            for (name, array) in self.columns_by_name() {
                values.set_item(name, value_at(py, array, row)?)?;
            }
            Ok(values)
        };
        (0..self.0.num_rows()).map(row).collect()
    }

    /// Returns the table as a Parquet file.
    fn to_parquet<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.frame().to_parquet()))
    }

    /// Returns the table as comma-separated values (RFC 4180).
    fn to_csv(&self, py: Python<'_>) -> String {
        py.detach(|| self.frame().to_csv())
    }

    /// The Arrow PyCapsule interface: readers get the columns where they are.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A reader must accept another schema than it asked for.
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        format!("Table({} rows: {})", self.0.num_rows(), self.columns().join(", "))
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Vec<PickledColumn<'py>>,))> {
        let restore = py.get_type::<Self>().getattr("_restore")?;
        let column = |(name, array): (&str, &ArrayRef)| {
            let values = (0..array.len()).map(|row| value_at(py, array, row));
            let values = PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?;
            Ok((name.to_owned(), array.data_type().to_string(), values))
        };
        let columns = self.columns_by_name().map(column).collect::<PyResult<Vec<_>>>()?;
        Ok((restore, (columns,)))
    }

    /// Returns the table that [`Self::__reduce__`] took apart.
    #[staticmethod]
    fn _restore(columns: Vec<PickledColumn<'_>>) -> PyResult<Self> {
        let column = |(name, kind, values): PickledColumn<'_>| {
            let kinds = [DataType::Int64, DataType::Utf8, DataType::Float64];
            let kind = kinds.into_iter().find(|known| known.to_string() == kind);
            let kind = kind.ok_or_else(|| PyValueError::new_err(format!("no column: {name:?}")))?;
            let array = array_of_kind(&values.iter().collect::<Vec<_>>(), &kind)?;
            Ok((name, array))
        };
        Ok(Self::new(columns.into_iter().map(column).collect::<PyResult<_>>()?))
    }
}

/// A column's name, type and values.
type PickledColumn<'py> = (String, String, Bound<'py, PyList>);

impl Table {
    /// Returns the table as a frame for files. A missing integer makes a column of floating-point numbers.
    fn frame(&self) -> Frame {
        let column = |(name, array): (&str, &ArrayRef)| (name.to_owned(), values_of(array));
        Frame::new(self.columns_by_name().map(column).collect())
    }
}

fn values_of(array: &ArrayRef) -> Values {
    let any: &dyn std::any::Any = array.as_any();
    match (array.data_type(), any.downcast_ref::<Int64Array>(), any.downcast_ref::<Float64Array>())
    {
        (DataType::Int64, Some(whole), _) if whole.null_count() == 0 => {
            Values::Whole(whole.values().to_vec())
        }
        #[expect(clippy::cast_precision_loss, reason = "a column with missing values")]
        (DataType::Int64, Some(whole), _) => {
            Values::Real(whole.iter().map(|it| it.map_or(f64::NAN, |it| it as f64)).collect())
        }
        (_, _, Some(reals)) => {
            Values::Real(reals.iter().map(|it| it.unwrap_or(f64::NAN)).collect())
        }
        _ => {
            let texts = any.downcast_ref::<StringArray>().expect("the only other type");
            Values::Text(texts.iter().map(|text| text.unwrap_or_default().to_owned()).collect())
        }
    }
}
