//! The port table read back, by who sends from the ports that it says.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// From which port a queue pair shall send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedPort {
    /// Address of the sending NIC.
    pub source: Ipv4Addr,
    /// Address of the receiving NIC.
    pub destination: Ipv4Addr,
    /// UDP source port; not zero.
    pub port: u16,
}

/// Why a text is no port table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortTableError {
    /// The heading lacks a column.
    #[error("no column {column:?} in the heading {heading:?}; `weft plan ports --csv` writes one")]
    Column {
        /// The column.
        column: &'static str,
        /// The first line.
        heading: String,
    },
    /// A field is missing, or is not what its column has.
    #[error("line {line}: {field:?} is no {column}")]
    Field {
        /// Counted from 1.
        line: usize,
        /// Which column.
        column: &'static str,
        /// What is there.
        field: String,
    },
    /// A field that begins with a quotation mark and does not end.
    #[error("line {line}: a quotation mark is not closed")]
    Quotation {
        /// Counted from 1.
        line: usize,
    },
}

/// The ports of a table as [`port_csv`](super::port_csv) writes it: CSV (RFC 4180) with a heading, of which the
/// columns `source`, `destination` and `source_port` count. Fields do not go over lines.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn read_port_csv(text: &str) -> Result<Vec<PlannedPort>, PortTableError> {
    let mut lines = (1..).zip(text.lines());
    let (_, heading) = lines.next().unwrap_or((1, ""));
    let names = fields(1, heading)?;
    let place = |column: &'static str| {
        let found = names.iter().position(|name| name == column);
        found.ok_or_else(|| PortTableError::Column { column, heading: heading.to_owned() })
    };
    let (source, destination, port) =
        (place("source")?, place("destination")?, place("source_port")?);
    let rows = lines.filter(|(_, text)| !text.is_empty());
    rows.map(|(line, text)| {
        let row = fields(line, text)?;
        let row = Row { line, row: &row };
        Ok(PlannedPort {
            source: row.get(source, "address", |text| text.parse().ok())?,
            destination: row.get(destination, "address", |text| text.parse().ok())?,
            port: row.get(port, "port", |text| text.parse().ok().filter(|&port| port != 0))?,
        })
    })
    .collect()
}

struct Row<'a> {
    line: usize,
    row: &'a [String],
}

impl Row<'_> {
    fn get<T>(
        &self,
        place: usize,
        column: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, PortTableError> {
        let field = self.row.get(place).map_or("", String::as_str);
        let wrong = || PortTableError::Field { line: self.line, column, field: field.to_owned() };
        read(field).ok_or_else(wrong)
    }
}

/// The fields of a line, without their quotation marks.
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
                // Two quotation marks within stand for one.
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
    fn what_is_wrong_is_said_with_its_line() {
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
