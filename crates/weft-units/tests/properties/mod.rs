//! The properties of every quantity's text, for the mutation test and the fuzz target.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use weft_units::{BitRate, ByteCount, Duration, suggest, unknown_name};

/// Parses a text as every kind of quantity and returns `true` if one of them accepts it.
///
/// # Panics
/// Panics if a property does not hold.
pub fn units(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let known = ["oblivious", "round-robin", "single"];
    if let Some(name) = suggest(&text, known) {
        assert!(known.contains(&name));
    }
    assert!(unknown_name("policy", &text, &known).contains("oblivious"));
    let accepted =
        [quantity::<Duration>(&text), quantity::<BitRate>(&text), quantity::<ByteCount>(&text)];
    accepted.contains(&true)
}

/// Returns `true` if the text is a quantity. Checks that a quantity parses back from its own text, and that an error
/// names the text.
fn quantity<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) -> bool {
    match text.parse::<T>() {
        Ok(value) => {
            let again = value.to_string().parse::<T>();
            assert_eq!(again.ok().as_ref(), Some(&value), "{text:?}");
            true
        }
        Err(error) => {
            assert!(error.to_string().starts_with(&format!("{text:?}")), "{error}");
            false
        }
    }
}
