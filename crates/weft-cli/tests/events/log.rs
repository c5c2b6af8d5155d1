//! The log of this test: that of the daemons on its threads, and of those that it starts as programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;
use weft_events::EVENTS;

/// The time limit for an event: drops are counted over ten seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// A log of JSON lines in memory.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Starts the log of this process.
    pub(crate) fn start() -> Self {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    }

    /// Adds the lines of a program's log.
    pub(crate) fn follow(&self, from: impl Read + Send + 'static) {
        let mut log = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                writeln!(log, "{line}").unwrap();
            }
        });
    }

    /// Returns the fields of the events of the table, with their levels.
    fn events(&self) -> Vec<(String, BTreeMap<String, Value>)> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            let level = line["level"].as_str().unwrap().to_owned();
            let fields = line["fields"].as_object().unwrap().clone().into_iter().collect();
            (level, fields)
        };
        let has_name = |event: &(String, BTreeMap<String, Value>)| event.1.contains_key("event");
        whole.lines().map(parse).filter(has_name).collect()
    }

    /// Waits for an event whose fields have these values, as text, and returns its fields. `act` is called meanwhile.
    pub(crate) fn wait(
        &self,
        event: &str,
        values: &[(&str, &str)],
        mut act: impl FnMut(),
    ) -> BTreeMap<String, Value> {
        let began = Instant::now();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        loop {
            let mut events = self.events().into_iter().map(|(_, fields)| fields);
            let found = events.find(|fields| {
                fields["event"] == event
                    && values.iter().all(|(name, value)| text(&fields[*name]) == *value)
            });
            if let Some(found) = found {
                return found;
            }
            assert!(began.elapsed() < LIMIT, "no {event} with {values:?} in {:#?}", self.events());
            act();
            weft_testkit::pause();
        }
    }

    /// Checks that every event of the table was logged, with its level and its fields and no others.
    pub(crate) fn assert_complete(&self) {
        let mut missing: BTreeSet<&str> = EVENTS.iter().map(|row| row.name).collect();
        for (level, fields) in self.events() {
            let row = EVENTS.iter().find(|row| fields["event"] == row.name);
            let row = row.unwrap_or_else(|| panic!("{fields:?} is in no table"));
            assert_eq!((level.as_str(), &fields["message"]), (row.level, &row.message.into()));
            let names: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
            let own = row.fields.iter().map(|field| field.name);
            assert_eq!(names, own.chain(["event", "message"]).collect(), "{}", row.name);
            missing.remove(row.name);
        }
        assert!(missing.is_empty(), "no daemon has logged {missing:?}");
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
