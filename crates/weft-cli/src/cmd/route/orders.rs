//! Handles the requests posted to a running controller: jobs, and their ends.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use hyper::StatusCode;
use serde_json::json;
use weft_plan::ports::Entropy;
use weft_steer::{Announcement, Handle, RequestError, read_job_table};
use weft_units::Seed;

use crate::http::{Access, Reply, Request};

/// The largest table of a job, bytes: about 600,000 queue pairs.
pub(super) const MAX_TABLE: usize = 64 << 20;

/// Carries out `POST /v1/jobs?job=NAME&…` with a table of ports, which plans a job, and `POST /v1/withdraw?job=NAME`,
/// which ends one.
pub(super) fn carry_out(request: &Request, access: &Access, controller: &Handle) -> Reply {
    if let Err(refusal) = access.check_order(&request.shown, "`weft route serve`") {
        return refusal;
    }
    match request.path.as_str() {
        "/v1/jobs" => announcement(request).map_or_else(
            |error| Reply::refuse(StatusCode::BAD_REQUEST, &error.to_string()),
            |it| {
                controller.announce(it).map_or_else(|error| refused(&error), |it| Reply::json(&it))
            },
        ),
        "/v1/withdraw" => parameter(&request.query, "job").map_or_else(
            || Reply::refuse(StatusCode::BAD_REQUEST, "which job? ?job=NAME"),
            |job| {
                let withdrawn = controller.withdraw(job.to_owned());
                let answer = withdrawn.map(|flows| json!({ "job": job, "flows": flows }));
                answer.map_or_else(|error| refused(&error), |it| Reply::json(&it))
            },
        ),
        _ => Reply::refuse(StatusCode::NOT_FOUND, "jobs are posted to /v1/jobs and /v1/withdraw"),
    }
}

fn refused(error: &RequestError) -> Reply {
    let status = match error {
        RequestError::Watches { .. } => StatusCode::CONFLICT,
        RequestError::Silent(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    };
    Reply::refuse(status, &error.to_string())
}

fn announcement(request: &Request) -> Result<Announcement> {
    let rows = read_job_table(&request.body)?;
    let query = request.query.as_str();
    let defaults = Entropy::default();
    let entropy = Entropy {
        protocol: number(query, "protocol")?.unwrap_or(defaults.protocol),
        destination_port: number(query, "to_port")?.unwrap_or(defaults.destination_port),
        ..defaults
    };
    let seed = Seed(number(query, "seed")?.unwrap_or(1));
    let rate = number(query, "rate")?;
    let job = parameter(query, "job").context("which job? ?job=NAME")?.to_owned();
    Ok(Announcement { job, rows, rate, entropy, seed })
}

fn number<T: FromStr>(query: &str, name: &str) -> Result<Option<T>> {
    let wrong = |text: &str| anyhow!("{text:?} is no {name}");
    parameter(query, name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
}

/// Returns the value of `name=VALUE` in a query.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find_map(|(it, value)| (it == name).then_some(value))
}
