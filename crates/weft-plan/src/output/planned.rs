//! The parser of the port table, for programs that send from its ports.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::str::FromStr;

use super::port_table::{PATH_SEPARATOR, PortRow};

/// The source port of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedPort {
    /// Address of the sending NIC.
    pub source: Ipv4Addr,
    /// Address of the receiving NIC.
    pub destination: Ipv4Addr,
    /// The UDP source port; not zero.
    pub port: u16,
}

/// An error in a port table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortTableError {
    /// The heading has not all required columns.
    #[error("no column {column:?} in the heading {heading:?}; `weft plan ports --csv` writes one")]
    Column {
        /// The missing column.
        column: &'static str,
        /// The first line.
        heading: String,
    },
    /// A field is missing or invalid.
    #[error("line {line}: {field:?} is no {column}")]
    Field {
        /// The line number, from 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// The field's text.
        field: String,
    },
    /// A quoted field is not closed.
    #[error("line {line}: a quotation mark is not closed")]
    Quotation {
        /// The line number, from 1.
        line: usize,
    },
}

/// Parses a table that [`port_csv`](super::port_csv) wrote: CSV (RFC 4180) with a heading, of which the columns
/// `source`, `destination` and `source_port` are read. A field must not contain line breaks.
///
/// # Errors
/// Returns the first fault, with its line.
pub fn read_port_csv(text: &str) -> Result<Vec<PlannedPort>, PortTableError> {
    let heading = Heading::of(text)?;
    let (source, destination, port) = (
        heading.required("source")?,
        heading.required("destination")?,
        heading.required("source_port")?,
    );
    rows(text)
        .map(|row| {
            let row = row?;
            Ok(PlannedPort {
                source: row.get(source, "address", |text| text.parse().ok())?,
                destination: row.get(destination, "address", |text| text.parse().ok())?,
                port: row.get(port, "port", |text| text.parse().ok().filter(|&port| port != 0))?,
            })
        })
        .collect()
}

/// Parses all rows of such a table, or of one without a plan: only the columns `source` and `destination` are
/// required. Default names are addresses, default ports and numbers are zero. Flow labels are computed from
/// ports; the column is ignored.
///
/// # Errors
/// Returns the first fault, with its line.
pub fn read_port_rows(text: &str) -> Result<Vec<PortRow>, PortTableError> {
    let heading = Heading::of(text)?;
    let (source, destination) = (heading.required("source")?, heading.required("destination")?);
    let [from, to, rail, to_rail, queue_pair, nic_port, port, path] =
        ["from", "to", "rail", "to_rail", "queue_pair", "nic_port", "source_port", "path"]
            .map(|column| heading.find(column));
    let row = |row: Result<Row, PortTableError>| {
        let row = row?;
        let address = |place| row.get(place, "address", |text| text.parse::<Ipv4Addr>().ok());
        let (source, destination) = (address(source)?, address(destination)?);
        let name = |place, address: Ipv4Addr| {
            let given = row.text(place);
            if given.is_empty() { address.to_string() } else { given.to_owned() }
        };
        let path = row.text(path).split(PATH_SEPARATOR).filter(|switch| !switch.is_empty());
        let mut parsed = PortRow {
            from: name(from, source),
            to: name(to, destination),
            rail: row.number(rail, "rail")?,
            to_rail: row.number(to_rail, "to_rail")?,
            queue_pair: row.number(queue_pair, "queue_pair")?,
            nic_port: row.number(nic_port, "nic_port")?,
            source,
            destination,
            source_port: 0,
            flow_label: 0,
            path: path.map(str::to_owned).collect(),
        };
        parsed.set_port(row.number(port, "port")?);
        Ok(parsed)
    };
    rows(text).map(row).collect()
}

/// The names of the columns.
struct Heading<'a> {
    line: &'a str,
    names: Vec<String>,
}

impl<'a> Heading<'a> {
    fn of(text: &'a str) -> Result<Self, PortTableError> {
        let line = text.lines().next().unwrap_or("");
        Ok(Self { line, names: fields(1, line)? })
    }

    fn find(&self, column: &str) -> Option<usize> {
        self.names.iter().position(|name| name == column)
    }

    fn required(&self, column: &'static str) -> Result<usize, PortTableError> {
        let lacks = || PortTableError::Column { column, heading: self.line.to_owned() };
        self.find(column).ok_or_else(lacks)
    }
}

/// A line's number, from 1, and its fields.
struct Row {
    line: usize,
    fields: Vec<String>,
}

/// Returns the rows below the heading.
fn rows(text: &str) -> impl Iterator<Item = Result<Row, PortTableError>> {
    let lines = (1..).zip(text.lines()).skip(1).filter(|(_, text)| !text.is_empty());
    lines.map(|(line, text)| Ok(Row { line, fields: fields(line, text)? }))
}

impl Row {
    fn get<T>(
        &self,
        place: usize,
        column: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, PortTableError> {
        let field = self.text(Some(place));
        let wrong = || PortTableError::Field { line: self.line, column, field: field.to_owned() };
        read(field).ok_or_else(wrong)
    }

    fn text(&self, place: Option<usize>) -> &str {
        place.and_then(|place| self.fields.get(place)).map_or("", String::as_str)
    }

    fn number<T: FromStr + Default>(
        &self,
        place: Option<usize>,
        column: &'static str,
    ) -> Result<T, PortTableError> {
        let Some(place) = place.filter(|&place| !self.text(Some(place)).is_empty()) else {
            return Ok(T::default());
        };
        self.get(place, column, |text| text.parse().ok())
    }
}

/// Returns the fields of a line without their quotation marks.
fn fields(line: usize, text: &str) -> Result<Vec<String>, PortTableError> {
    let mut fields = Vec::new();
    let mut rest = text;
    loop {
        let mut field = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (part, after) =
                    quoted.split_once('"').ok_or(PortTableError::Quotation { line })?;
                field.push_str(part);
                rest = after;
                // A doubled quotation mark is one quotation mark of the field.
                let Some(more) = after.strip_prefix('"') else { break };
                field.push('"');
                quoted = more;
            }
        }
        let (part, after) = match rest.split_once(',') {
            Some((part, after)) => (part, Some(after)),
            None => (rest, None),
        };
        field.push_str(part);
        fields.push(field);
        let Some(after) = after else { return Ok(fields) };
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use crate::output::port_csv;

    const HEADING: &str =
        "from,to,rail,to_rail,queue_pair,nic_port,source,destination,source_port,flow_label,path";

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let text = alloc::format!(
            "{HEADING}\r\n\"a, \"\"b\"\"\",c,0,0,0,0,10.0.0.1,10.0.0.2,49152,16385,l0 > s1\r\n\
             d,e,0,0,1,0,10.0.0.2,10.0.0.1,65535,16383,\n"
        );
        let [a, b] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let expected = vec![
            PlannedPort { source: a, destination: b, port: 49_152 },
            PlannedPort { source: b, destination: a, port: 65_535 },
        ];
        assert_eq!(read_port_csv(&text), Ok(expected));
    }

    #[test]
    fn rows_read_back_as_they_were_written_and_unnamed_ends_are_named_by_their_addresses() {
        let text = alloc::format!(
            "{HEADING}\n\"a, \"\"b\"\"\",c,1,2,3,4,10.0.0.1,10.0.0.2,49152,16385,l0 > s1 > l1\n"
        );
        let rows = read_port_rows(&text).unwrap();
        assert_eq!((rows[0].from.as_str(), rows[0].nic_port), ("a, \"b\"", 4));
        assert_eq!(rows[0].path, ["l0", "s1", "l1"]);
        assert_eq!(port_csv(&rows), text);

        let rows = read_port_rows("destination,source\n10.0.0.2,10.0.0.1\n").unwrap();
        assert_eq!((rows[0].from.as_str(), rows[0].to.as_str()), ("10.0.0.1", "10.0.0.2"));
        assert_eq!((rows[0].source_port, rows[0].path.len()), (0, 0));
        for (text, message) in [
            ("source\n10.0.0.1", "no column \"destination\""),
            ("source,destination,rail\n10.0.0.1,10.0.0.2,x", "line 2: \"x\" is no rail"),
            (
                "source,destination,source_port\n10.0.0.1,10.0.0.2,65536",
                "line 2: \"65536\" is no port",
            ),
        ] {
            let error = read_port_rows(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn an_invalid_table_is_refused_with_the_line_of_the_fault() {
        let row = |source: &str, port: &str| {
            alloc::format!("{HEADING}\na,b,0,0,0,0,{source},10.0.0.2,{port},1,\n")
        };
        for (text, message) in [
            (String::new(), "no column \"source\" in the heading \"\""),
            (row("10.0.0", "49152"), "line 2: \"10.0.0\" is no address"),
            (row("10.0.0.1", "65536"), "line 2: \"65536\" is no port"),
            (row("10.0.0.1", "0"), "line 2: \"0\" is no port"),
            (alloc::format!("{HEADING}\na,b\n"), "line 2: \"\" is no address"),
            (alloc::format!("{HEADING}\n\"a,b\n"), "line 2: a quotation mark is not closed"),
        ] {
            let error = read_port_csv(&text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
