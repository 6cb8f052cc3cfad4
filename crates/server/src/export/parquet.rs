//! Points as Parquet: one row group a piece, so that memory holds one and readers can skip.

use std::sync::Arc;

use parquet::basic::ZstdLevel;
use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical,
};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::columns::Columns;
use super::{Head, Rows};

/// Values handed over at once: what a column of labels takes in memory.
const VALUES_AT_ONCE: usize = 8_192;

type RowGroup<'w> = SerializedRowGroupWriter<'w, Vec<u8>>;

/// Writes a file into memory that is taken away after each row group.
pub(super) struct Parquet(SerializedFileWriter<Vec<u8>>);

impl Parquet {
    /// A file with these columns.
    pub(super) fn new(columns: &Columns) -> Result<Self> {
        let plain = |name: &str| ColumnPath::from(name);
        let rising = |properties: parquet::file::properties::WriterPropertiesBuilder, name: &str| {
            properties
                .set_column_dictionary_enabled(plain(name), false)
                .set_column_encoding(plain(name), Encoding::DELTA_BINARY_PACKED)
        };
        let properties = WriterProperties::builder()
            .set_created_by(concat!("truegauge version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_max_row_group_row_count(None);
        let properties = rising(rising(properties, "time"), "step");
        let writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema(columns)?), Arc::new(properties.build()))?;
        Ok(Self(writer))
    }

    /// The next row group's bytes.
    pub(super) fn write(&mut self, columns: &Columns, rows: &Rows) -> Result<Vec<u8>> {
        if !rows.times_ns.is_empty() {
            let mut group = self.0.next_row_group()?;
            texts(&mut group, rows, &|head| Some(&*head.metric))?;
            column::<Int64Type>(&mut group, &rows.times_ns, None)?;
            optional::<Int64Type>(&mut group, rows.steps.iter().copied())?;
            let attempts = rows.attempts.iter().map(|attempt| attempt.and_then(|a| i32::try_from(a).ok()));
            optional::<Int32Type>(&mut group, attempts)?;
            column::<DoubleType>(&mut group, &rows.values, None)?;
            for one in &columns.labels {
                texts(&mut group, rows, &|head| head.labels.get(&one.label))?;
            }
            group.close()?;
        }
        self.0.flush()?;
        Ok(std::mem::take(self.0.inner_mut()))
    }

    /// The end of the file.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        self.0.into_inner()
    }
}

/// How many points a file says that it has; the reason in words where it is not whole.
pub fn points_of(path: &std::path::Path) -> std::result::Result<u64, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
    Ok(u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or_default())
}

/// The file's columns.
fn schema(columns: &Columns) -> Result<Type> {
    let field = |name: &str, kind, repetition, logical| {
        let field = Type::primitive_type_builder(name, kind).with_repetition(repetition);
        field.with_logical_type(logical).build().map(Arc::new)
    };
    let text = |name: &str, repetition| {
        let field = Type::primitive_type_builder(name, Physical::BYTE_ARRAY).with_repetition(repetition);
        let field = field.with_logical_type(Some(LogicalType::String));
        field.with_converted_type(ConvertedType::UTF8).build().map(Arc::new)
    };
    let nanos = LogicalType::timestamp(true, TimeUnit::NANOS);
    let mut fields = vec![
        text("metric", Repetition::REQUIRED)?,
        field("time", Physical::INT64, Repetition::REQUIRED, Some(nanos))?,
        field("step", Physical::INT64, Repetition::OPTIONAL, None)?,
        field("attempt", Physical::INT32, Repetition::OPTIONAL, None)?,
        field("value", Physical::DOUBLE, Repetition::REQUIRED, None)?,
    ];
    for one in &columns.labels {
        fields.push(text(&one.column, Repetition::OPTIONAL)?);
    }
    Type::group_type_builder("points").with_fields(fields).build()
}

/// Writes a column whole.
fn column<T: parquet::data_type::DataType>(
    group: &mut RowGroup<'_>,
    values: &[T::T],
    defined: Option<&[i16]>,
) -> Result<()> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<T>().write_batch(values, defined, None)?;
    column.close()
}

fn optional<T: parquet::data_type::DataType>(
    group: &mut RowGroup<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<()> {
    let mut defined = Vec::new();
    let mut given = Vec::new();
    for value in values {
        defined.push(i16::from(value.is_some()));
        given.extend(value);
    }
    column::<T>(group, &given, Some(&defined))
}

/// Writes a column that has one text for all points of a series, or none where the column may lack it.
fn texts(
    group: &mut RowGroup<'_>,
    rows: &Rows,
    text: &dyn for<'h> Fn(&'h Head) -> Option<&'h str>,
) -> Result<()> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    let writer = column.typed::<ByteArrayType>();
    let optional = writer.get_descriptor().max_def_level() > 0;
    let (mut values, mut defined) = (Vec::new(), Vec::new());
    for head in &rows.heads {
        let value = text(head).map(ByteArray::from);
        let mut left = head.points;
        while left > 0 {
            let now = left.min(VALUES_AT_ONCE - defined.len());
            defined.resize(defined.len() + now, i16::from(value.is_some()));
            if let Some(value) = &value {
                values.resize(values.len() + now, value.clone());
            }
            left -= now;
            if defined.len() == VALUES_AT_ONCE {
                writer.write_batch(&values, optional.then_some(&defined), None)?;
                values.clear();
                defined.clear();
            }
        }
    }
    writer.write_batch(&values, optional.then_some(&defined), None)?;
    column.close()
}
