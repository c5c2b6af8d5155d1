use serde_json::json;

use super::*;
use crate::gnmi::proto::gnmi::Update;

/// Parses `/a/b[k=v]/c`, without escapes.
fn path(text: &str) -> Path {
    let element = |text: &str| {
        let (name, keys) = text.split_once('[').unwrap_or((text, ""));
        let pairs = keys.split(['[', ']']).filter_map(|pair| pair.split_once('='));
        let key = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        PathElem { name: name.into(), key }
    };
    // Slashes inside brackets belong to a key.
    let mut elements: Vec<String> = vec![];
    for part in text.split('/').skip(1) {
        match elements.last_mut() {
            Some(last) if last.matches('[').count() > last.matches(']').count() => {
                last.push('/');
                last.push_str(part);
            }
            _ => elements.push(part.into()),
        }
    }
    Path { elem: elements.iter().map(|it| element(it)).collect(), ..Path::default() }
}

fn update(at: &str, value: typed_value::Value) -> Update {
    let val = Some(TypedValue { value: Some(value) });
    Update { path: Some(path(at)), val, ..Update::default() }
}

fn built(prefix: Option<&str>, update: Vec<Update>) -> Result<Tree, TreeFault> {
    let notification = Notification { prefix: prefix.map(path), update, ..Notification::default() };
    let mut builder = TreeBuilder::default();
    builder.add(&notification)?;
    Ok(builder.finish())
}

/// Returns the tree of these values, as JSON.
pub(crate) fn tree(values: &[(&str, &str)]) -> Tree {
    let json = |&(at, text): &(&str, &str)| {
        update(at, typed_value::Value::JsonIetfVal(text.as_bytes().to_vec()))
    };
    built(None, values.iter().map(json).collect()).unwrap()
}

#[test]
fn one_document_and_an_update_for_each_leaf_are_the_same_tree() {
    use typed_value::Value::{StringVal, UintVal};
    let document = tree(&[(
        "/interfaces",
        r#"{"openconfig-interfaces:interface": [{"name": "Ethernet1/1", "state": {"ifindex": 7,
            "counters": {"out-octets": "18446744073709551615"}, "oper-status": "UP"}}]}"#,
    )]);
    let at = |leaf: &str| format!("/interface[name=Ethernet1/1]/state/{leaf}");
    let leaves = vec![
        update(&at("ifindex"), UintVal(7)),
        update(&at("counters/out-octets"), UintVal(u64::MAX)),
        update(&at("oper-status"), StringVal("UP".into())),
        update("/interface[name=Ethernet1/1]/name", StringVal("Ethernet1/1".into())),
    ];
    assert_eq!(built(Some("/interfaces"), leaves).unwrap(), document);
    let port = document.entry("interfaces/interface", "Ethernet1/1").unwrap();
    assert_eq!(port.leaf("state/counters/out-octets"), Some("18446744073709551615"));
    assert_eq!((port.leaf("state"), port.leaf("state/none")), (None, None));
}

#[test]
fn entries_are_named_by_their_keys_without_modules() {
    let document = tree(&[(
        "/protocols",
        r#"{"protocol": [{"identifier": "openconfig-policy-types:STATIC", "name": "static",
            "static-routes": {"static": [{"prefix": "fd00::/64"}]}}, {"config": {"x": true}}]}"#,
    )]);
    let names: Vec<&str> = document.entries("protocols/protocol").map(|(name, _)| name).collect();
    assert_eq!(names, ["#1", "STATIC static"]);
    let keyed = tree(&[("/protocols/protocol[identifier=STATIC][name=static]/a", "1")]);
    assert_eq!(keyed.entry("protocols/protocol", "STATIC static").unwrap().leaf("a"), Some("1"));
    let found = document.entry("protocols/protocol", "STATIC static").unwrap();
    assert!(found.entry("static-routes/static", "fd00::/64").is_some());
}

#[test]
fn an_answer_without_bounds_is_refused() {
    let deep = "/a".repeat(MAX_DEPTH + 1);
    let text = |text: &str| typed_value::Value::JsonIetfVal(text.into());
    assert!(matches!(built(None, vec![update(&deep, text("1"))]), Err(TreeFault::TooDeep)));
    let nested = "[".repeat(200);
    let error = built(None, vec![update("/a", text(&nested))]).unwrap_err().to_string();
    assert!(error.starts_with("/a: recursion limit exceeded"), "{error}");
    let error = built(None, vec![update("/a", text("{"))]).unwrap_err().to_string();
    assert!(error.starts_with("/a: EOF while parsing"), "{error}");
    let many = json!((0..=MAX_NODES).collect::<Vec<_>>()).to_string();
    assert!(matches!(built(None, vec![update("/a", text(&many))]), Err(TreeFault::TooLarge)));
    let bytes = typed_value::Value::ProtoBytes(vec![1]);
    assert!(matches!(built(None, vec![update("/a", bytes)]), Err(TreeFault::Encoding(_))));
}
