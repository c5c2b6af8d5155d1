//! The files of `tests/golden/chakra` were written by the published Python stubs of protocol buffers.

use super::*;
use crate::import::Roofline;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/chakra/pair.0.et")
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

fn field(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// A node with attributes that are whole numbers.
fn node(id: u64, kind: u64, before: &[u64], attributes: &[(&str, u64)]) -> Vec<u8> {
    let mut message = [vec![8], varint(id), vec![24], varint(kind)].concat();
    for &id in before {
        message.extend([vec![40], varint(id)].concat());
    }
    for (name, value) in attributes {
        let attribute = [field(1, name.as_bytes()), vec![72], varint(*value)].concat();
        message.extend(field(10, &attribute));
    }
    message
}

fn import(nodes: &[Vec<u8>]) -> Result<Import, String> {
    let messages = std::iter::once(field(1, b"1")).chain(nodes.iter().cloned());
    let bytes: Vec<u8> =
        messages.flat_map(|message| [varint(message.len() as u64), message].concat()).collect();
    let sources = vec![Source::of(&bytes, Path::new("t.0.et")).unwrap()];
    read(sources, None, &Options::default()).map_err(|error| error.to_string())
}

#[test]
fn all_kinds_of_nodes_and_numbers_are_read() {
    let import = read_ranks(&golden(), &Options::default()).unwrap();
    let Summary { taken, left, .. } = &import.summary;
    let count = |kind: &str| taken.get(kind).copied().unwrap_or_default();
    assert_eq!(["metadata", "computations"].map(count), [2, 2]);
    let parts = ["all_reduce (parts of ranks)", "all_gather (parts of ranks)"];
    assert_eq!(parts.map(count), [2, 2]);
    assert_eq!(["sends", "receives", "memory loads", "memory stores"].map(count), [1; 4]);
    let left: Vec<(&str, u64)> = left.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    let of_type = "the work of nodes of type 8 (only their recorded duration is kept)";
    let want = [("attribute comm_priority", 2), ("attribute involved_dim", 1), (of_type, 1)];
    assert_eq!(left, want);
    let graph = &import.graph;
    assert_eq!((graph.ranks(), graph.nodes().len()), (2, 13));
    let [reduce, gather] = graph.operations() else { panic!("{:?}", graph.operations()) };
    assert_eq!((reduce.kind, reduce.bytes), (Collective::AllReduce, 4096));
    assert_eq!((gather.kind, gather.bytes), (Collective::AllGather, 2 * 1000), "two shards");
    // 4,096 bytes are 2 * 2,048 for each of two ranks, and two shards of 1,000.
    assert_eq!(graph.bytes(), 2 * 4096 + 2 * 1000 + 8000);
    let units = |rank: u32| {
        let of = graph.nodes().iter().filter(move |node| node.rank == rank);
        of.filter_map(|node| match node.op {
            Op::Compute { unit, span } => Some((unit, span.as_picos())),
            _ => None,
        })
    };
    assert_eq!(units(0).collect::<Vec<_>>(), [(GPU, 5_000_000)]);
    assert_eq!(units(1).collect::<Vec<_>>(), [(CPU, 5_000_000)]);
}

#[test]
fn the_roofline_replaces_the_times_of_gpus() {
    let roofline = Some(Roofline { tflops: 1.0, memory_gbps: 1.0 });
    let options = Options { roofline, ..Options::default() };
    let graph = read_ranks(&golden(), &options).unwrap().graph;
    let spans = graph.nodes().iter().filter_map(|node| match node.op {
        Op::Compute { span, .. } => Some(span.as_picos()),
        _ => None,
    });
    // A million operations take 1 us, 2,000 bytes take 2; rank 1 computes on its CPU.
    assert_eq!(spans.collect::<Vec<_>>(), [2_000_000, 5_000_000]);
}

#[test]
fn the_files_of_all_ranks_are_needed() {
    let folder = std::env::temp_dir().join(format!("weft-chakra-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (from, to) in [("pair.0.et", "x.0.et"), ("pair.1.et", "x.2.et")] {
        std::fs::copy(golden().with_file_name(from), folder.join(to)).unwrap();
    }
    let error = |name: &str| {
        let error = read_ranks(&folder.join(name), &Options::default()).unwrap_err().to_string();
        error.rsplit_once('/').unwrap().1.to_owned()
    };
    assert_eq!(error("x.2.et"), "x.1.et: there is no such file, and there is x.2.et");
    let want = "x.0.et: node 1: no group \"7\": expected it in a file NAME.json beside NAME.0.et";
    assert!(error("x.0.et").starts_with(want), "{}", error("x.0.et"));
    assert!(error("x.et").starts_with("x.et: expected the name of a rank's file"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn malformed_traces_are_refused_with_the_node() {
    let reduce = [("comm_type", 0), ("comm_size", 8)];
    for (nodes, want) in [
        (
            vec![node(1, 4, &[2], &[]), node(2, 4, &[1], &[])],
            "t.0.et: node 1: it depends on itself",
        ),
        (vec![node(1, 4, &[], &[]), node(1, 4, &[], &[])], "t.0.et: node 1: there are two nodes"),
        (vec![node(3, 7, &[], &reduce[..1])], "t.0.et: node 3: expected the attribute comm_size"),
        (vec![node(3, 7, &[], &[("comm_type", 77)])], "t.0.et: node 3: comm_type is 77"),
        (vec![node(3, 5, &[], &[("comm_dst", 1)])], "t.0.et: node 3: comm_dst: rank 1 does not"),
        (vec![node(3, 6, &[], &[("comm_src", 0)])], "t.0.et: node 3: this node of rank 0 would"),
        (vec![vec![0xff]], "t.0.et: message 1 from byte 5 is not a node"),
    ] {
        let error = import(&nodes).unwrap_err();
        assert!(error.starts_with(want), "{error}");
    }
    let known = import(&[node(1, 4, &[9], &[]), node(2, 7, &[], &reduce)]).unwrap().summary;
    assert_eq!(known.left["dependencies on nodes that are not in the file"], 1);
    for (bytes, want) in [
        (&b""[..], "t.0.et: the file is empty"),
        (b"\x05\x01", "t.0.et: byte 2: the file ends 4 bytes before the end of a record"),
        (b"\xff\xff\xff\xff\x0f", "t.0.et: byte 5: a message of 4294967295 bytes"),
        (b"\xff\xff\xff\xff\xff", "t.0.et: byte 5: expected the length of a message"),
        (b"\x80", "t.0.et: byte 1: the file ends here, in the length"),
    ] {
        let sources = vec![Source::of(bytes, Path::new("t.0.et")).unwrap()];
        let error = read(sources, None, &Options::default()).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
}
