//! Properties of keys and values from etcd, for any bytes. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use super::{Key, Object, View};

/// Takes the first line as a key and the rest as its value: an object is the same when it is written and read back, and a
/// host's view stays whole, whatever comes. Returns `true` if there was an object.
///
/// # Panics
/// If an object changes when written and read back, or a refused value changes the view.
pub fn fleet_values(bytes: &[u8]) -> bool {
    let split = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let (key, value) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    let parsed = Key::parse("/weft", key);
    if let Ok(key) = &parsed {
        assert_eq!(Key::parse("/weft", key.path("/weft").as_bytes()).as_ref(), Ok(key));
    }
    let object = parsed.ok().and_then(|key| Object::parse(&key, value).ok().map(|it| (key, it)));
    if let Some((key, object)) = &object {
        let again = Object::parse(key, &object.json()).expect("it was an object");
        assert_eq!(again, *object);
    }
    let mut view = View::new("h1");
    let before = view.part("/weft");
    view.apply("/weft", [(key, Some(value))]);
    let part = view.part("/weft");
    if object.is_none() {
        assert_eq!(part.faults.len(), 1, "a refused value is named");
        assert_eq!(
            (part.ports, part.networks, part.routes),
            (before.ports, before.networks, before.routes)
        );
    }
    view.apply("/weft", [(key, None)]);
    assert!(view.objects().next().is_none(), "what is deleted is gone");
    object.is_some()
}

#[test]
fn no_value_violates_a_property() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = crate::inputs::corpus(&file.join("tests/golden/fleet_values.corpus"));
    let objects = crate::inputs::survive(&corpus, 20_000, fleet_values);
    assert!(objects > 100, "only {objects} were objects: the mutants are too wild");
}
