//! Blocks of addresses with exceptions, as prefixes.

use k8s_openapi::api::networking::v1::IPBlock;
use weft_vpc::Prefix;

/// Returns the prefixes of a block without its exceptions.
///
/// # Errors
/// The first text that is no prefix.
pub(crate) fn prefixes(block: &IPBlock) -> Result<Vec<Prefix>, String> {
    let mut left = vec![parse(&block.cidr)?];
    for text in block.except.iter().flatten() {
        let except = parse(text)?;
        left = left.into_iter().flat_map(|prefix| without(prefix, except)).collect();
    }
    Ok(left)
}

/// Parses a prefix. Bits after its length, which the API server accepts with a warning, do not count.
fn parse(text: &str) -> Result<Prefix, String> {
    let parsed = || {
        let (address, len) = text.split_once('/')?;
        Prefix::new(address.parse().ok()?, len.parse().ok()?)
    };
    parsed().ok_or_else(|| format!("{text} is no prefix such as 10.0.0.0/8"))
}

/// Returns the prefixes that hold the addresses of `prefix` that are not in `except`.
fn without(prefix: Prefix, except: Prefix) -> Vec<Prefix> {
    if except.contains(prefix.address()) && except.bits() <= prefix.bits() {
        return vec![];
    }
    if !prefix.contains(except.address()) {
        return vec![prefix];
    }
    let [low, high] = halves(prefix);
    [without(low, except), without(high, except)].concat()
}

/// Returns the two halves of a prefix that has more than one address.
fn halves(prefix: Prefix) -> [Prefix; 2] {
    let len = prefix.bits() + 1;
    let second = match prefix.address() {
        std::net::IpAddr::V4(v4) => {
            std::net::IpAddr::V4((v4.to_bits() | 1u32 << (32 - u32::from(len))).into())
        }
        std::net::IpAddr::V6(v6) => {
            std::net::IpAddr::V6((v6.to_bits() | 1u128 << (128 - u32::from(len))).into())
        }
    };
    let half = |address| Prefix::new(address, len).expect("longer by one bit, and not too long");
    [half(prefix.address()), half(second)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cidr: &str, except: &[&str]) -> Result<Vec<String>, String> {
        let except = except.iter().map(|&it| it.to_owned()).collect();
        let block = IPBlock { cidr: cidr.into(), except: Some(except) };
        Ok(prefixes(&block)?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn exceptions_leave_the_prefixes_around_them() {
        assert_eq!(
            block("10.0.0.0/8", &["10.0.0.0/10", "10.192.0.0/10"]).unwrap(),
            ["10.64.0.0/10", "10.128.0.0/10"]
        );
        assert_eq!(block("192.0.2.0/30", &["192.0.2.2/32"]).unwrap().len(), 2);
        assert_eq!(block("2001:db8::/32", &["2001:db8:8000::/33"]).unwrap(), ["2001:db8::/33"]);
        assert_eq!(block("10.0.0.0/8", &["10.0.0.0/8"]).unwrap(), [""; 0]);
        assert_eq!(block("10.0.0.0/8", &["0.0.0.0/0"]).unwrap(), [""; 0]);
        assert_eq!(block("10.0.0.0/8", &["192.0.2.0/24"]).unwrap(), ["10.0.0.0/8"]);
        assert_eq!(block("0.0.0.0/0", &["192.0.2.1/32"]).unwrap().len(), 32);
    }

    #[test]
    fn bits_after_the_length_do_not_count_and_other_texts_are_refused() {
        assert_eq!(block("10.1.2.3/8", &[]).unwrap(), ["10.0.0.0/8"]);
        for text in ["10.0.0.0", "10.0.0.0/33", "web/8"] {
            assert!(block(text, &[]).unwrap_err().contains(text));
        }
    }
}
