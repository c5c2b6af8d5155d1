//! Handles the requests posted to a running controller: jobs, their ends, and hosts' reports of probes.

use std::net::IpAddr;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, ensure};
use hyper::StatusCode;
use serde_json::json;
use weft_plan::ports::Entropy;
use weft_route::{JobError, ProbeReport};
use weft_steer::{Announcement, Handle, PortsRequest, RequestError, read_job_table};
use weft_units::Seed;

use crate::http::{Access, Reply, Request};

/// The largest table of a job, bytes: about 600,000 queue pairs.
pub(super) const MAX_TABLE: usize = 64 << 20;

/// Carries out `POST /v1/jobs?job=NAME&…` with a table of ports, which plans a job, `POST
/// /v1/ports?job=NAME&source=ADDRESS&plan=N`, which returns a sender's ports if the job has another plan
/// and renews the job's lease, `POST /v1/withdraw?job=NAME`, which ends a job, `POST /v1/order` with hosts'
/// addresses, a line each, which returns their order in a ring, and `POST /v1/probes` with a host's report of its probes
/// as JSON. A controller that does not steer sends the client to the one that does, if it knows its page.
pub(super) fn carry_out(request: &Request, access: &Access, controller: &Handle) -> Reply {
    if let Err(refusal) = access.check_order(&request.shown, "`weft route serve`") {
        return refusal;
    }
    match request.path.as_str() {
        "/v1/jobs" => announcement(request).map_or_else(
            |error| Reply::refuse(StatusCode::BAD_REQUEST, &error.to_string()),
            |it| {
                controller
                    .announce(it)
                    .map_or_else(|error| refused(request, &error), |it| Reply::json(&it))
            },
        ),
        "/v1/withdraw" => parameter(&request.query, "job").map_or_else(
            || Reply::refuse(StatusCode::BAD_REQUEST, "which job? ?job=NAME"),
            |job| {
                let withdrawn = controller.withdraw(job.to_owned());
                let answer = withdrawn.map(|flows| json!({ "job": job, "flows": flows }));
                answer.map_or_else(|error| refused(request, &error), |it| Reply::json(&it))
            },
        ),
        "/v1/ports" => ports_request(request).map_or_else(
            |error| Reply::refuse(StatusCode::BAD_REQUEST, &error.to_string()),
            |it| {
                controller
                    .ports(it)
                    .map_or_else(|error| refused(request, &error), |it| Reply::json(&it))
            },
        ),
        "/v1/order" => hosts(request).map_or_else(
            |error| Reply::refuse(StatusCode::BAD_REQUEST, &error.to_string()),
            |it| {
                controller
                    .order(it)
                    .map_or_else(|error| refused(request, &error), |it| Reply::json(&it))
            },
        ),
        "/v1/probes" => probe_report(&request.body).map_or_else(
            |error| Reply::refuse(StatusCode::BAD_REQUEST, &format!("{error:#}")),
            |report| {
                let counted = controller.probes(report, request.peer);
                let answer = counted.map(|paths| json!({ "paths": paths }));
                answer.map_or_else(|error| refused(request, &error), |it| Reply::json(&it))
            },
        ),
        _ => Reply::refuse(
            StatusCode::NOT_FOUND,
            "posts are for /v1/jobs, /v1/ports, /v1/order, /v1/probes and /v1/withdraw",
        ),
    }
}

fn refused(request: &Request, error: &RequestError) -> Reply {
    let status = match error {
        RequestError::Watches { url: Some(url), .. } => {
            return Reply::redirect(url, request, &error.to_string());
        }
        RequestError::Watches { url: None, .. } => StatusCode::CONFLICT,
        RequestError::Job(JobError::Unknown { .. }) => StatusCode::NOT_FOUND,
        RequestError::Silent(_) => StatusCode::SERVICE_UNAVAILABLE,
        RequestError::Speaker { .. } => StatusCode::FORBIDDEN,
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
    let (rate, lease) = (number(query, "rate")?, number(query, "lease")?);
    let job = parameter(query, "job").context("which job? ?job=NAME")?.to_owned();
    Ok(Announcement { job, rows, rate, entropy, seed, lease })
}

fn ports_request(request: &Request) -> Result<PortsRequest> {
    let query = request.query.as_str();
    let job = parameter(query, "job").context("which job? ?job=NAME")?.to_owned();
    let source = number(query, "source")?.context("whose ports? ?source=ADDRESS")?;
    Ok(PortsRequest { job, source, plan: number(query, "plan")?.unwrap_or(0) })
}

/// The longest report of probes, bytes: some 200 for each of 1,024 paths.
const MAX_PROBE_REPORT: usize = 1 << 18;

fn probe_report(body: &[u8]) -> Result<ProbeReport> {
    ensure!(
        body.len() <= MAX_PROBE_REPORT,
        "a report of probes of {} bytes; it has at most {MAX_PROBE_REPORT}",
        body.len()
    );
    serde_json::from_slice(body).context("that is no report of probes")
}

/// The most hosts of a ring.
const MAX_HOSTS: usize = 1 << 16;

fn hosts(request: &Request) -> Result<Vec<IpAddr>> {
    let text = std::str::from_utf8(&request.body).context("hosts are a line of text each")?;
    let parse = |line: &str| line.trim().parse().map_err(|_| anyhow!("{line:?} is no address"));
    let hosts: Vec<IpAddr> = text.lines().map(parse).collect::<Result<_>>()?;
    ensure!(
        (1..=MAX_HOSTS).contains(&hosts.len()),
        "{} hosts, expected 1 to {MAX_HOSTS}",
        hosts.len()
    );
    Ok(hosts)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_probes_is_json_without_other_keys() {
        let path = r#"{ "destination": "10.2.0.2", "source_port": 61000, "sent": 9, "lost": 9 }"#;
        let report = |more: &str| {
            format!(r#"{{ "source": "10.1.0.2", "port": 4794, "paths": [{path}]{more} }}"#)
        };
        let read = probe_report(report("").as_bytes()).unwrap();
        assert_eq!((read.paths[0].lost, read.paths[0].round_trip), (9, None));
        let long = "x".repeat(MAX_PROBE_REPORT + 1);
        for (text, words) in [
            (report(", \"colour\": 1"), "colour"),
            (report("").replace("9 }", "-1 }"), "-1"),
            ("[]".into(), "no report of probes"),
            (long, "at most 262144"),
        ] {
            let error = format!("{:#}", probe_report(text.as_bytes()).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
