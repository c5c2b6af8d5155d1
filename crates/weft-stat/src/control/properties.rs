//! The properties of every order to a node and every answer. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::convert::Infallible;

use super::{read_request, read_settings, render, write_request};

/// Reads bytes as an order and as an answer's settings. What is read is written and read again the same. Returns `true` if
/// they were an order.
///
/// # Panics
/// If an order or an answer changes on its way.
pub fn orders(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    // A line that ends in a carriage return is the same line without it: then the text may change, once.
    let has_returns = text.contains('\r');
    let order = read_request(text);
    if let Some(order) = &order
        && !has_returns
    {
        assert_eq!(read_request(&write_request(order)).as_ref(), Some(order));
    }
    if let Some(settings) = read_settings(text) {
        let again = render::<Infallible>(&Ok(settings.clone()));
        let again = again.strip_prefix("ok\n").expect("it is an answer");
        assert!(has_returns || read_settings(again) == Some(settings));
    }
    order.is_some()
}

#[test]
fn no_order_breaks_a_promise() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = crate::inputs::corpus(&file.join("tests/golden/orders.corpus"));
    let orders = crate::inputs::survive(&corpus, 20_000, orders);
    assert!(orders > 500, "only {orders} were orders: the mutants are too wild");
}
