//! Ethernet addresses in configurations.

use serde::{Deserialize, Serialize};
use weft_wire::MacAddr;

/// An Ethernet address, written as `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub MacAddr);

weft_units::text_schema! {
    Mac: "Mac", "The Ethernet address of one interface such as 02:00:00:00:00:01", r"^[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}$";
}

/// The error of a text that is not the Ethernet address of one interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseMacError {
    /// The text is not six bytes in hexadecimal digits.
    #[error("{text:?} is no Ethernet address, expected 02:00:00:00:00:01")]
    Malformed {
        /// The text.
        text: String,
    },
    /// The address is that of a group.
    #[error("{text} is the address of a group, expected that of one interface")]
    Group {
        /// The text.
        text: String,
    },
}

impl std::str::FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let wrong = || ParseMacError::Malformed { text: text.to_owned() };
        let parts: Vec<_> = text.split([':', '-']).collect();
        let parts = <[&str; 6]>::try_from(parts).map_err(|_| wrong())?;
        let mut address = MacAddr([0; 6]);
        for (byte, part) in address.0.iter_mut().zip(parts) {
            let two = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = two.then(|| u8::from_str_radix(part, 16).ok()).flatten().ok_or_else(wrong)?;
        }
        if address.is_group() {
            return Err(ParseMacError::Group { text: text.to_owned() });
        }
        Ok(Self(address))
    }
}

impl TryFrom<String> for Mac {
    type Error = ParseMacError;

    fn try_from(text: String) -> Result<Self, ParseMacError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, f] = self.0.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}
