//! The verdict on a figure: whether its result here agrees with the paper.

use std::fmt;

use serde::Serialize;

use super::{Experiment, Findings, Outcome, Source};

/// The relation of our figure to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every claim of the paper holds here too.
    Reproduced,
    /// A claim of the paper is known not to hold here; the file's `differs` gives the reason.
    Differs,
    /// Every target of a topic is met.
    MeetsTargets,
    /// A target of a topic is known not to be met; the file's `differs` gives the reason.
    MissesTarget,
    /// The figure needs hardware or data that is not here; the file's `missing` names the substitute.
    NotReproducible,
    /// A claim is not as the file states: the file, or the code it measures, must be fixed.
    OutOfDate,
    /// No rows were recorded.
    NotRun,
}

impl Experiment {
    /// Returns the verdict on the findings; `None` means that no rows were recorded.
    pub fn verdict(&self, findings: Option<&Findings>) -> Verdict {
        if matches!(self.source(), Source::Missing(_)) {
            return Verdict::NotReproducible;
        }
        let Some(findings) = findings else { return Verdict::NotRun };
        if !findings.claims.iter().all(Outcome::as_stated) {
            return Verdict::OutOfDate;
        }
        self.stated_verdict()
    }

    /// Returns the verdict if every claim is as the file states.
    pub fn stated_verdict(&self) -> Verdict {
        let differs = self.claims.iter().any(|claim| claim.differs);
        // A figure without a comparison to the paper's words does not reproduce them.
        let compared = self.claims.iter().any(|claim| !claim.paper.is_empty());
        match self.source() {
            Source::Missing(_) => Verdict::NotReproducible,
            _ if self.paper.is_empty() && differs => Verdict::MissesTarget,
            _ if self.paper.is_empty() => Verdict::MeetsTargets,
            _ if differs || !compared => Verdict::Differs,
            _ => Verdict::Reproduced,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::Differs => "differs",
            Self::MeetsTargets => "meets its targets",
            Self::MissesTarget => "misses a target",
            Self::NotReproducible => "cannot be had here",
            Self::OutOfDate => "out of date",
            Self::NotRun => "not run",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(claims: &[&str], rate: f64) -> Verdict {
        verdict_of("paper = \"p\"", claims, rate)
    }

    fn verdict_of(paper: &str, claims: &[&str], rate: f64) -> Verdict {
        let claims: Vec<String> = claims
            .iter()
            .map(|more| {
                format!(
                    "[[claims]]\ntext = \"c\"\n\
            left = {{ measure = \"rate\" }}\nis = \">\"\nright = 1.0\n{more}"
                )
            })
            .collect();
        let text = format!(
            "title = \"t\"\nsource = \"s\"\n{paper}\ndiffers = \"d\"\n\
             bench = {{ command = \"true\", on = \"a model\" }}\n\
             measures = [{{ name = \"rate\", value = \"rate\" }}]\n{}",
            claims.join("\n")
        );
        let experiment = Experiment::parse(&text).unwrap();
        let rows = experiment.measure_rows(&[serde_json::json!({ "rate": rate })]).unwrap();
        experiment.verdict(Some(&experiment.evaluate(rows).unwrap()))
    }

    #[test]
    fn a_claim_of_the_papers_that_does_not_hold_makes_a_figure_differ() {
        let paper = "paper = \"more than 1\"";
        let differs = "paper = \"more than 1\"\ndiffers = true";
        assert_eq!(verdict(&[paper], 2.0), Verdict::Reproduced);
        assert_eq!(verdict(&[paper], 0.5), Verdict::OutOfDate);
        assert_eq!(verdict(&[differs], 0.5), Verdict::Differs);
        assert_eq!(verdict(&[differs], 2.0), Verdict::OutOfDate);
        assert_eq!(verdict(&[""], 2.0), Verdict::Differs, "nothing is held against the paper");
    }

    #[test]
    fn a_topic_without_a_paper_meets_its_targets_or_misses_one() {
        assert_eq!(verdict_of("", &[""], 2.0), Verdict::MeetsTargets);
        assert_eq!(verdict_of("", &["differs = true"], 0.5), Verdict::MissesTarget);
        assert_eq!(verdict_of("", &[""], 0.5), Verdict::OutOfDate);
    }
}
