use std::io::Write;

use super::*;

fn read(name: &str, text: &str) -> Result<Vec<Flow>, String> {
    let file = std::env::temp_dir().join(format!("weft-{}-{name}", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let flows = read_flow_list(&file, 128);
    std::fs::remove_file(&file).unwrap();
    flows.map_err(|error| error.to_string().rsplit_once(name).unwrap().1.to_owned())
}

#[test]
fn both_formats_give_the_same_flows() {
    let matrix = "Nodes 128\nConnections 2\n\
                  3->4 id 1 start 0 size 2000\n# a comment\n5->6 start 27000 size 1 prio 3\n";
    let ns3 = "2\n3 4 3 2000 2.000000000\n5 6 3 1 2.000000027\n";
    let flows = read("same.cm", matrix).unwrap();
    assert_eq!(flows, read("same.flows", ns3).unwrap());
    assert_eq!(flows[1].start, SimTime::from_picos(27_000));
    assert_eq!((flows[1].source, flows[1].length), (NodeId(5), 1));
}

#[test]
fn a_compressed_file_is_read_by_its_name() {
    let file = std::env::temp_dir().join(format!("weft-{}-list.cm.gz", std::process::id()));
    let mut gz =
        flate2::write::GzEncoder::new(File::create(&file).unwrap(), flate2::Compression::default());
    gz.write_all(b"Nodes 2\nConnections 1\n0->1 start 0 size 9\n").unwrap();
    gz.finish().unwrap();
    assert_eq!(read_flow_list(&file, 2).unwrap().len(), 1);
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_truncated_compressed_file_is_named_with_the_missing_line() {
    let file = std::env::temp_dir().join(format!("weft-{}-cut.flows.gz", std::process::id()));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gz.write_all(b"3\n0 1 3 5 1.0\n1 0 3 5 1.0\n0 1 3 5 2.0\n").unwrap();
    let whole = gz.finish().unwrap();
    std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let error = read_flow_list(&file, 2).unwrap_err().to_string();
    let end = error.rsplit_once("cut.flows.gz: ").unwrap().1;
    assert!(end.starts_with("line 4: "), "{error}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn lists_of_the_program_are_read_by_name() {
    let flows = built_in::read("permutation-128-2MB.cm.gz", 128).unwrap();
    assert_eq!(flows.len(), 128);
    assert!(flows.iter().all(|flow| flow.length == 2_000_000));
    let error = built_in::read("permutation-9.cm.gz", 128).unwrap_err().to_string();
    assert!(error.starts_with("built-in:permutation-9.cm.gz: the program has no such"), "{error}");
}

#[test]
fn a_malformed_line_is_named_with_the_expected_content() {
    for (name, text, want) in [
        ("a.cm", "Nodes 129\n", ":1: expected at most the topology's 128 hosts, found \"129\""),
        ("b.cm", "Nodes 2\n\n0->1 start x size 1\n", ":3: expected a start in whole picoseconds"),
        ("c.cm", "Nodes 2\n0->1 start 0\n", ":2: expected src->dst [id k] start"),
        ("d.cm", "Nodes 2\n0->0 start 0 size 1\n", ":2: expected two different hosts"),
        ("e.cm", "Nodes 2\nConnections 2\n0->1 start 0 size 1\n", ":2: expected as many flows"),
        ("f.cm", "Nodes 2\n0->1 start 0 size 5000000000\n", ":2: expected a size, 1 to"),
        ("g.flows", "", ":1: expected a number of flows, or"),
        ("h.flows", "1\n0 1 3 5\n", ":2: expected src dst priority bytes start_seconds"),
        ("i.flows", "1\n0 128 3 5 1.0\n", ":2: expected a host, 0 to 127, found \"128\""),
        ("k.flows", "3\n0 1 3 5 1.0\n1 0 3 5 1.0\n", ":1: expected as many flows as announced: 3"),
        ("l.flows", "2\n0 1 3 5 1.0\n1 0 3\n", ":3: expected src dst priority bytes start"),
        ("j.flows", "1\n0 1 3 5 -1.0\n", ":2: expected a start in seconds"),
    ] {
        let error = read(name, text).unwrap_err();
        assert!(error.starts_with(want), "{name}: {error}");
    }
    let error = read_flow_list(Path::new("/no/such/file"), 2).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file: "), "{error}");
}
