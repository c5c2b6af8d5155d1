//! `dissector/weft.lua`: a plug-in for Wireshark and tshark with the header tables of `weft-wire`.

use std::collections::BTreeSet;

use weft_wire::spec::{Field, HEADERS, Header, NUMBERS};

/// The program of the plug-in; the tables replace its line `-- TABLES`.
const PROGRAM: &str = include_str!("dissector/main.lua");
/// The decryption of sealed packets; it replaces the line `-- SEALED`.
const SEALED: [&str; 2] = [include_str!("dissector/gcm.lua"), include_str!("dissector/sealed.lua")];

/// The headers that the program dissects, with their keys in it: those of the transport, and the overlay's VXLAN, which
/// has a next protocol. Wireshark dissects the outer headers itself.
const KEYS: [(&str, &str); 10] = [
    ("data", "Data packet"),
    ("message", "Message extension"),
    ("rdma", "RDMA extension"),
    ("operands", "RDMA atomic operands"),
    ("setup", "Connection set-up packet"),
    ("terms", "Terms"),
    ("exchange", "Key exchange"),
    ("sealed", "Sealed packet"),
    ("ack", "ACK packet"),
    ("vxlan", "VXLAN"),
];

/// The fields whose values have names, with the list of names.
const NAMED: [(&str, &str); 3] =
    [("Pkt Type", "Packet types"), ("ACK Type", "ACK types"), ("Content", "Sealed contents")];

/// Returns the plug-in.
pub(crate) fn render() -> String {
    let numbers = NUMBERS.iter().map(|(list, numbers)| {
        let rows = numbers.iter().map(|n| format!("  [{}] = {:?},\n", n.value, n.name));
        format!("names[{list:?}] = {{\n{}}}\n", rows.collect::<String>())
    });
    let headers = KEYS.iter().map(|(key, name)| {
        let header = HEADERS.iter().find(|header| header.name == *name);
        table(key, header.expect("a header of weft-wire"))
    });
    let tables = numbers.chain(headers).collect::<String>();
    let program = PROGRAM.replace("-- TABLES\n", &tables);
    program.replace("-- SEALED\n", &SEALED.join("\n"))
}

fn table(key: &str, header: &Header) -> String {
    let mut taken = BTreeSet::new();
    let rows = header.fields.iter().map(|field| {
        let mut slug = slug(field.name);
        while !taken.insert(slug.clone()) {
            slug += "_2";
        }
        row(&slug, field)
    });
    let (name, bytes) = (header.name, header.bits() / 8);
    let rows = rows.collect::<String>();
    format!("header({key:?}, {name:?}, {bytes}, {{\n{rows}}})\n")
}

/// Returns a row: filter name, name, first byte, bytes, bits, mask, list of value names, meaning.
fn row(slug: &str, field: &Field) -> String {
    let bytes = field.bytes();
    let list = NAMED.iter().find(|(name, _)| *name == field.name);
    let list = list.map_or_else(|| "nil".to_owned(), |(_, list)| format!("names[{list:?}]"));
    let after = 8 * bytes.end - field.first_bit - field.width;
    let mask = match field.width == 8 * bytes.len() {
        true => 0,
        false => ((1_u64 << field.width) - 1) << after,
    };
    format!(
        "  {{ {slug:?}, {:?}, {}, {}, {}, {mask:#x}, {list}, {:?} }},\n",
        field.name,
        bytes.start,
        bytes.len(),
        field.width,
        field.meaning
    )
}

/// Returns a filter name: lower-case letters, digits and underscores.
fn slug(name: &str) -> String {
    let letter = |letter: char| if letter.is_alphanumeric() { letter } else { '_' };
    let slug = name.to_lowercase().chars().map(letter).collect::<String>();
    slug.split('_').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_figure_c2_lie_where_the_paper_has_them() {
        let plugin = render();
        for row in [
            r#"{ "version", "Version", 1, 1, 4, 0xf0, nil, "protocol version" }"#,
            r#"{ "se", "se", 2, 1, 1, 0x80, nil,"#,
            r#"{ "path_id", "Path ID", 2, 1, 3, 0x7, nil,"#,
            r#"{ "packet_sequence_number", "Packet Sequence Number", 4, 4, 32, 0x0, nil,"#,
        ] {
            assert!(plugin.contains(row), "no {row} in\n{plugin}");
        }
    }

    #[test]
    fn a_field_across_bytes_has_a_mask_of_all_of_them() {
        // The paper's bits 203 to 213 of the ACK header are in bytes 25 and 26.
        assert!(render().contains(r#"{ "num_ece", "Num_ece", 25, 2, 11, 0x1ffc, nil,"#));
    }

    #[test]
    fn filters_of_fields_with_the_same_name_differ() {
        let plugin = render();
        assert!(plugin.contains(r#"{ "reserved", "#) && plugin.contains(r#"{ "reserved_2", "#));
    }
}
