//! `docs/reference/wire.md`: the position of every field of every header.

use weft_wire::Packet;
use weft_wire::spec::{Field, HEADERS, Header, NUMBERS, Number};

use super::table::table;

const INTRODUCTION: &str = "\
# Wire formats

<!-- Generated from weft-wire by `cargo xtask docs`; edit the tables in crates/weft-wire/src. -->

All fields are in network byte order, except those of the virtio header. Bit 0 is the
most significant bit of a header's first byte, as in RFCs and in BIFROST's figures. A datagram of the
transport begins with a data, an ACK or a set-up header; the first byte gives the type.

```text
Ethernet | IPv4 or IPv6 | UDP | data header | message extension | payload   messages
Ethernet | IPv4 or IPv6 | UDP | data header | message extension | RDMA extension | payload
Ethernet | IPv4 or IPv6 | UDP | VXLAN | data header | tenant's frame        VPC (BIFROST)
                                        ACK header | bitmap words
                                        set-up header | terms
Ethernet | IPv4 or IPv6 | UDP | set-up header | terms | key exchange        request, accept
Ethernet | IPv4 or IPv6 | UDP | sealed header | data or ACK packet, or a close, encrypted | tag
Ethernet | IPv4 or IPv6 | UDP | VXLAN | sealed header | packet or tenant's frame, encrypted | tag
```

[Connections](../design/connections.md#keys) describes the order in which a connection's packets are sent, and which of
them are encrypted.
";

/// Returns the page.
pub(crate) fn render() -> String {
    let headers = HEADERS.iter().map(header);
    let numbers = NUMBERS.iter().map(|(name, numbers)| number_list(name, numbers));
    let longest = format!(
        "\nThe transport's headers take at most {} bytes of a datagram.\n",
        Packet::MAX_LEN
    );
    let sections = headers.chain(numbers).collect::<String>();
    INTRODUCTION.to_owned() + &longest + &sections
}

fn header(header: &Header) -> String {
    let Header { name, source, about, fields } = header;
    let bytes = header.bits() / 8;
    let rows: Vec<_> = fields.iter().map(row).collect();
    let table = table(["Bits", "Width", "Field", "Meaning"], &rows);
    format!("\n## {name}\n\n{bytes} bytes; {source}. {about}\n\n{table}")
}

fn row(field: &Field) -> [String; 4] {
    let last = field.first_bit + field.width - 1;
    let bits = match field.width {
        1 => format!("{last}"),
        _ => format!("{}-{last}", field.first_bit),
    };
    [bits, field.width.to_string(), field.name.into(), field.meaning.into()]
}

fn number_list(name: &str, numbers: &[Number]) -> String {
    let rows: Vec<_> = numbers
        .iter()
        .map(|number| [number.value.to_string(), number.name.into(), number.meaning.into()])
        .collect();
    format!("\n## {name}\n\n{}", table(["Number", "Name", "Meaning"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_figure_c2_as_the_paper_prints_it() {
        let page = render();
        for row in
            ["| 8-11   | 4     | Version", "| 16     | 1     | se", "| 21-23  | 3     | Path ID"]
        {
            assert!(page.contains(row), "no {row:?} in\n{page}");
        }
    }

    #[test]
    fn no_cell_breaks_its_table() {
        let fields = HEADERS.iter().flat_map(|header| header.fields);
        let numbers = NUMBERS.iter().flat_map(|(_, numbers)| *numbers);
        let texts = fields.flat_map(|field| [field.name, field.meaning]);
        for text in texts.chain(numbers.flat_map(|number| [number.name, number.meaning])) {
            assert!(!text.is_empty() && !text.contains(['|', '\n']), "{text:?}");
        }
    }
}
