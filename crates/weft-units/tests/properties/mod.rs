//! The properties of every quantity's text. The mutation test and the fuzz target both call this.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use weft_units::{BitRate, ByteCount, Duration, suggest, unknown_name};

/// Reads a text as every kind of quantity; whether any took it.
pub fn units(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let known = ["oblivious", "round-robin", "single"];
    if let Some(name) = suggest(&text, known) {
        assert!(known.contains(&name));
    }
    assert!(unknown_name("policy", &text, &known).contains("oblivious"));
    let taken =
        [quantity::<Duration>(&text), quantity::<BitRate>(&text), quantity::<ByteCount>(&text)];
    taken.contains(&true)
}

/// Checks that a written quantity reads back the same, and that a refusal names the text.
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
