//! Label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::Labels;

/// Returns `true` if labels fulfil all requirements of a selector; one without any selects everything.
pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key).is_some_and(|own| own == value));
    equal && selector.match_expressions.iter().flatten().all(|it| fulfils(it, labels))
}

/// The API server refuses other operators; one that it knows and this controller does not selects nothing.
fn fulfils(requirement: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let (own, values) = (labels.get(&requirement.key), requirement.values.iter().flatten());
    let is_among = |own: &String| values.clone().any(|value| value == own);
    match requirement.operator.as_str() {
        "In" => own.is_some_and(is_among),
        "NotIn" => !own.is_some_and(is_among),
        "Exists" => own.is_some(),
        "DoesNotExist" => own.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> LabelSelector {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_operator_selects_as_documented() {
        let labels = Labels::from([("app".into(), "web".into()), ("tier".into(), String::new())]);
        for (text, expected) in [
            ("{}", true),
            (r#"{"matchLabels":{"app":"web"}}"#, true),
            (r#"{"matchLabels":{"app":"db"}}"#, false),
            (r#"{"matchLabels":{"app":"web","zone":"a"}}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"In","values":["db","web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"NotIn","values":["web"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"Like","values":["w"]}]}"#, false),
        ] {
            assert_eq!(selects(&selector(text), &labels), expected, "{text}");
        }
    }
}
