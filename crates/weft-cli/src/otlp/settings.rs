//! The collector and what a daemon says about itself: from `--otlp` and OpenTelemetry's standard variables.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use percent_encoding::percent_decode_str;
use weft_guard::tls::{Connector, TlsClientFiles};

/// The default of `OTEL_METRIC_EXPORT_INTERVAL`.
const INTERVAL: Duration = Duration::from_secs(60);
/// The default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Command-line options of the export.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OtlpOptions {
    /// Send metrics and events to the OpenTelemetry collector at this URL, as OTLP over HTTP
    /// [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long = "otlp", value_name = "URL")]
    url: Option<String>,
}

/// The collector, and what is sent with everything.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The URL, without a slash at its end.
    pub(super) url: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The path before `/v1/metrics`; empty or with a slash at its beginning.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) interval: Duration,
    pub(super) tls: Option<Arc<Connector>>,
    /// The attributes of the resource: the daemon and its host.
    pub(super) resource: Vec<KeyValue>,
}

/// Returns an attribute.
pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

impl Settings {
    /// Returns the settings of the daemon `service`, or `None` if there is no collector.
    ///
    /// # Errors
    /// An option or a variable has a value that it cannot have; the error names it.
    pub(super) fn read(options: &OtlpOptions, service: &str) -> Result<Option<Self>> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::of(options, service, variable)
    }

    fn of(
        options: &OtlpOptions,
        service: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let (url, source) = match (&options.url, variable(ENDPOINT)) {
            (Some(url), _) => (url.clone(), "--otlp"),
            (None, Some(url)) => (url, ENDPOINT),
            (None, None) => return Ok(None),
        };
        let protocol = variable("OTEL_EXPORTER_OTLP_PROTOCOL");
        if let Some(other) = protocol.filter(|protocol| protocol != "http/protobuf") {
            bail!(
                "OTEL_EXPORTER_OTLP_PROTOCOL={other} is not spoken: http/protobuf is, by default at port 4318 of a collector"
            );
        }
        let millis = |name: &str, default: Duration| match variable(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
                _ => bail!("{name}={text} is no number of milliseconds"),
            },
        };
        let uri = Uri::try_from(&url).ok().filter(|uri| uri.host().is_some());
        let uri = uri
            .with_context(|| format!("{source}: {url} is no URL such as http://127.0.0.1:4318"))?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("{source}: {url} begins with neither http:// nor https://"),
        };
        let file = |name: &str| variable(name).map(PathBuf::from);
        let tls = tls(&url, is_encrypted, file)?;
        let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        Ok(Some(Self {
            url: url.trim_end_matches('/').to_owned(),
            host: uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 }),
            path: uri.path().trim_end_matches('/').to_owned(),
            headers: parse_headers(&headers)?,
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT)?,
            interval: millis("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL)?,
            tls,
            resource: resource(service, variable)?,
        }))
    }
}

/// Returns the TLS of a collector.
fn tls(
    url: &str,
    is_encrypted: bool,
    file: impl Fn(&str) -> Option<PathBuf>,
) -> Result<Option<Arc<Connector>>> {
    const AUTHORITIES: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
    if !is_encrypted {
        return Ok(None);
    }
    let Some(authorities) = file(AUTHORITIES) else {
        bail!(
            "{url} is known by the authority of its certificate: name that file in {AUTHORITIES}"
        );
    };
    let certificate = file("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE");
    let identity = certificate.zip(file("OTEL_EXPORTER_OTLP_CLIENT_KEY"));
    Ok(Some(Arc::new(Connector::new(TlsClientFiles { authorities, identity })?)))
}

/// Returns the attributes of a daemon. Those of the variables take precedence.
fn resource(service: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<KeyValue>> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_owned();
    let mut attributes = vec![
        ("service.name".to_owned(), service.to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id".to_owned(), host.clone()),
        ("host.name".to_owned(), host),
    ];
    let own = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let own = parse_pairs(&own).context("OTEL_RESOURCE_ATTRIBUTES")?;
    let name = variable("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name));
    for (key, value) in own.into_iter().chain(name) {
        attributes.retain(|(known, _)| *known != key);
        attributes.push((key, value));
    }
    let string = |(key, value): (String, String)| attribute(&key, Value::StringValue(value));
    let mut attributes: Vec<_> = attributes.into_iter().map(string).collect();
    let process = i64::from(std::process::id());
    attributes.push(attribute("process.pid", Value::IntValue(process)));
    Ok(attributes)
}

fn parse_headers(text: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in parse_pairs(text).context("OTEL_EXPORTER_OTLP_HEADERS")? {
        let parsed = HeaderName::try_from(&name).ok().zip(HeaderValue::try_from(&value).ok());
        // The value may be a secret.
        let (key, mut value) =
            parsed.with_context(|| format!("OTEL_EXPORTER_OTLP_HEADERS: {name} is no header"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// Returns the pairs of `key=value,key=value`, whose values may have bytes as `%2C` (W3C Baggage).
fn parse_pairs(text: &str) -> Result<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').context("it is no list of key=value")?;
            let value = percent_decode_str(value.trim()).decode_utf8().context("it is no UTF-8")?;
            Ok((key.trim().to_owned(), value.into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Settings>> {
        let options = OtlpOptions { url: url.map(str::to_owned) };
        Settings::of(&options, "weft-vpc", |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn text(settings: &Settings, key: &str) -> Option<String> {
        let found = settings.resource.iter().find(|it| it.key == key)?;
        match found.value.clone()?.value? {
            Value::StringValue(text) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn the_option_comes_before_the_variable_and_without_both_nothing_is_sent() {
        assert!(read(None, &[("OTEL_SERVICE_NAME", "x")]).unwrap().is_none());
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:4318/otlp/");
        let it = read(None, &[endpoint]).unwrap().unwrap();
        assert_eq!((it.host.as_str(), it.port, it.path.as_str()), ("::1", 4318, "/otlp"));
        assert_eq!((it.interval, it.timeout), (INTERVAL, TIMEOUT));
        let it = read(Some("http://collector"), &[endpoint]).unwrap().unwrap();
        assert_eq!((it.host.as_str(), it.port, it.path.as_str()), ("collector", 80, ""));
    }

    #[test]
    fn variables_have_the_meaning_of_the_standard() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a%2Cb, x-tenant=7"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment.name=lab,service.name=a,host.name=h",
            ),
            ("OTEL_SERVICE_NAME", "b"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ];
        let it = read(Some("http://127.0.0.1:4318"), &variables).unwrap().unwrap();
        assert_eq!(it.headers["authorization"], "Bearer a,b");
        assert_eq!(it.headers["x-tenant"], "7");
        assert_eq!((it.timeout.as_millis(), it.interval.as_secs()), (250, 1));
        assert_eq!(text(&it, "service.name").as_deref(), Some("b"));
        assert_eq!(text(&it, "deployment.environment.name").as_deref(), Some("lab"));
        assert_eq!(text(&it, "host.name").as_deref(), Some("h"));
        assert_eq!(it.resource.iter().filter(|it| it.key == "service.name").count(), 1);
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (url, variables, named) in [
            ("collector:4318", &[][..], "--otlp"),
            ("ftp://collector", &[], "http://"),
            ("https://collector", &[], "OTEL_EXPORTER_OTLP_CERTIFICATE"),
            ("http://c", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http/protobuf"),
            ("http://c", &[("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")], "OTEL_EXPORTER_OTLP_TIMEOUT"),
            ("http://c", &[("OTEL_METRIC_EXPORT_INTERVAL", "0")], "OTEL_METRIC_EXPORT_INTERVAL"),
            ("http://c", &[("OTEL_EXPORTER_OTLP_HEADERS", "secret")], "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://c", &[("OTEL_EXPORTER_OTLP_HEADERS", "a b=x")], "a b is no header"),
        ] {
            let error = format!("{:#}", read(Some(url), variables).unwrap_err());
            assert!(error.contains(named), "{url}: {error}");
        }
    }
}
