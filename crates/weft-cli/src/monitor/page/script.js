// Draws /v1/picture once a second. Texts come from programs that are watched: they are set as text, never as HTML.

const EVERY = 1000;
const STEPS = [10e3, 20e3, 50e3, 100e3, 200e3, 500e3, 1e6, 10e6]; // ns: the upper ends of all colours but the last
const DENSE = 14; // ends from which on the matrix has squares only
const HEAT = 120; // points of the latency map

const at = (id) => document.getElementById(id);
const params = new URLSearchParams(location.search);
let grain = params.get('grain') === 'hosts' ? 'by_host' : params.get('grain') === 'programs' ? 'by_program' : null;

/** An element with attributes and children; strings become text. */
function make(name, attributes = {}, ...children) {
  const svg = ['svg', 'rect', 'circle', 'line', 'title'].includes(name);
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const three = (value) => (value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$/, '');
function scaled(value, step, units) {
  let power = 0;
  while (value >= step && power + 1 < units.length) { value /= step; power += 1; }
  return three(value) + units[power];
}
const rate = (value) => scaled(value, 1000, ['', 'k', 'M', 'G']);
const bytes = (value) => scaled(value, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']);
const time = (nanos) => (nanos === null ? '–' : nanos < 1e3 ? `${nanos} ns` : nanos < 1e6 ? `${three(nanos / 1e3)} µs`
  : nanos < 1e9 ? `${three(nanos / 1e6)} ms` : `${three(nanos / 1e9)} s`);
const percent = (part) => `${three(part * 100)} %`;
const clock = (millis) => new Date(millis).toLocaleTimeString([], { hour12: false });

function heat(nanos) {
  if (nanos === null) return 'none';
  const step = STEPS.findIndex((end) => nanos < end);
  return `h${step < 0 ? STEPS.length : step}`;
}

const name = (end) => (end.program ? `${end.program[0]} (${end.program[1]})` : end.host);
const key = (end) => JSON.stringify([end.host, end.program]);
function label(end) {
  return end.program ? [end.program[0], make('small', {}, `${end.program[1]} on ${end.host}`)] : [end.host];
}

function tiles(picture) {
  const pairs = picture.by_host.map(([, pair]) => pair);
  const sum = (of) => pairs.reduce((total, pair) => total + of(pair), 0);
  const silent = picture.hosts.filter((host) => host.silent).length;
  const shut = sum((pair) => pair.channels - pair.open);
  const slowest = Math.max(-1, ...pairs.map((pair) => pair.p99 ?? -1));
  const rows = [
    ['hosts', silent ? `${picture.hosts.length - silent} of ${picture.hosts.length}` : `${picture.hosts.length}`, silent > 0],
    ['programs', `${picture.hosts.reduce((total, host) => total + host.programs, 0)}`, false],
    ['channels', shut ? `${sum((pair) => pair.open)} open of ${sum((pair) => pair.channels)}` : `${sum((pair) => pair.channels)}`, false],
    ['messages/s', rate(sum((pair) => pair.messages) / 2), false],
    ['bytes/s', bytes(sum((pair) => pair.bytes) / 2), false],
    ['99 % of calls, slowest pair', time(slowest < 0 ? null : slowest), false],
    ['registered memory', bytes(picture.hosts.reduce((total, host) => total + host.memory, 0)), false],
  ];
  at('tiles').replaceChildren(...rows.map(([about, value, bad]) =>
    make('div', {}, make('dt', {}, about), make('dd', bad ? { class: 'bad' } : {}, value))));
}

function matrix(pairs) {
  const ends = new Map();
  for (const [{ from, to }] of pairs) for (const end of [from, to]) ends.set(key(end), end);
  const all = [...ends.keys()].sort();
  const cells = new Map(pairs.map(([{ from, to }, pair]) => [key(from) + key(to), pair]));
  const head = make('tr', {}, make('th', {}, 'from ↓ to →'),
    ...all.map((it) => make('th', { scope: 'col' }, ...label(ends.get(it)))));
  const rows = all.map((from) => make('tr', {}, make('th', { scope: 'row' }, ...label(ends.get(from))),
    ...all.map((to) => cell(ends.get(from), ends.get(to), cells.get(from + to)))));
  at('matrix').className = all.length >= DENSE ? 'dense' : '';
  at('matrix').replaceChildren(...(all.length ? [head, ...rows] : [make('caption', { class: 'nothing' }, 'no channels')]));
}

function cell(from, to, pair) {
  if (!pair) return make('td', { class: 'is-empty' }, '·');
  const classes = [heat(pair.p99)];
  if (pair.is_stale) classes.push('is-stale');
  if (pair.open < pair.channels) classes.push('is-shut');
  const lines = [`${name(from)} → ${name(to)}`, `${pair.open} of ${pair.channels} channels open`,
    `${rate(pair.messages)} messages/s, ${bytes(pair.bytes)}/s`,
    `${rate(pair.calls)} calls/s: half in ${time(pair.p50)}, 99 % in ${time(pair.p99)}`,
    `${pair.in_flight} frames under way, ${pair.backlog} messages waiting`];
  if (pair.retransmitted !== null) lines.push(`${percent(pair.retransmitted)} of packets retransmitted`);
  if (pair.on_tcp) lines.push(`${pair.on_tcp} on TCP`);
  return make('td', { class: classes.join(' '), title: lines.join('\n') }, `${rate(pair.messages)}/s`,
    make('small', {}, pair.p99 === null ? `${pair.channels} open` : time(pair.p99)));
}

function legend() {
  const names = [...STEPS.map((end) => `< ${time(end)}`), 'more'];
  at('legend').replaceChildren(...names.map((text, step) => make('span', { class: `h${step}` }, text)),
    make('span', { class: 'none' }, 'no calls'));
}

function latency(pairs) {
  const called = pairs.filter(([, , points]) => points.some((point) => point.p99 !== null));
  const rows = called.map(([{ from, to }, pair, points]) => {
    const last = points.slice(-HEAT);
    const strip = make('svg', { viewBox: `0 0 ${HEAT} 1`, preserveAspectRatio: 'none' },
      ...last.map((point, index) => make('rect', {
        x: HEAT - last.length + index, y: 0, width: 1.05, height: 1, class: heat(point.p99),
      }, make('title', {}, `${clock(point.at)}: ${time(point.p99)}`))));
    const pairName = make('div', { class: 'pair', title: `${name(from)} → ${name(to)}` }, `${name(from)} → ${name(to)}`);
    return make('div', { class: 'row' }, pairName, strip, make('div', { class: 'now' }, time(pair.p99)));
  });
  at('heat').replaceChildren(...(rows.length ? rows : [nothing('no calls were answered yet')]));
}

function paths(picture) {
  const side = 15;
  const wide = 40;
  const rows = picture.paths.map((row) => {
    const known = row.paths.filter(([, rtt]) => rtt !== null).map(([, rtt]) => rtt);
    const lost = row.paths.reduce((total, [, , count]) => total + count, 0);
    const down = row.paths.filter(([, , , up]) => !up).length;
    const squares = row.paths.flatMap(([number, rtt, losses, up], index) => {
      const [x, y] = [(index % wide) * side, Math.floor(index / wide) * side];
      const about = `path ${number}: ${time(rtt)}, ${losses} lost, ${up ? 'up' : 'down'}`;
      const square = make('rect', { x, y, width: side - 2, height: side - 2, rx: 2.5, class: heat(rtt) }, make('title', {}, about));
      const middle = side / 2 - 1;
      if (!up) return [square, make('line', { x1: x + 2, y1: y + 2, x2: x + side - 4, y2: y + side - 4 }), make('line', { x1: x + side - 4, y1: y + 2, x2: x + 2, y2: y + side - 4 })];
      return losses ? [square, make('circle', { cx: x + middle, cy: y + middle, r: Math.min(5, 2 + Math.log10(losses)) })] : [square];
    });
    const [width, height] = [Math.min(row.paths.length, wide) * side, Math.ceil(row.paths.length / wide) * side];
    const rests = picture.at - row.at > 5000;
    return make('div', { class: rests ? 'path-row rests' : 'path-row' },
      make('p', {}, make('b', {}, `${row.program} (${row.pid}) on ${row.host} → ${row.peer}`),
        make('span', {}, known.length ? `${time(Math.min(...known))} to ${time(Math.max(...known))}` : 'no round trip yet'),
        make('span', {}, `${lost} lost`), make('span', {}, down ? `${down} down` : 'all up'),
        make('span', {}, `${percent(row.sent ? row.retransmits / row.sent : 0)} sent again`)),
      make('svg', { viewBox: `0 0 ${width} ${height}`, width, height }, ...squares));
  });
  at('paths').replaceChildren(...(rows.length ? rows
    : [nothing('no paths: programs of one host speak through its memory, and other hardware does not tell')]));
}

function talkers(picture) {
  const heads = ['from', 'to', 'sent/s', 'messages/s', 'window', 'by'];
  const head = make('tr', {}, ...heads.map((text, index) => make('th', index > 1 && index < 5 ? { class: 'number' } : {}, text)));
  const rows = picture.talkers.map((it) => make('tr', {},
    make('td', {}, name(it.ends.from)), make('td', {}, name(it.ends.to)),
    ...[bytes(it.bytes), rate(it.messages), `${it.in_flight}/${it.depth}`].map((text) => make('td', { class: 'number' }, text)),
    make('td', {}, it.carrier)));
  at('talkers').replaceChildren(...(rows.length ? [head, ...rows] : [make('caption', { class: 'nothing' }, 'nobody sends')]));
}

function pings(picture) {
  if (!picture.pings) return at('pings').replaceChildren(make('caption', { class: 'nothing' }, 'none yet'));
  const pairs = picture.pings.pairs;
  const hosts = [...new Set(pairs.flatMap((pair) => [pair.from, pair.to]))];
  const of = new Map(pairs.map((pair) => [`${pair.from} ${pair.to}`, pair]));
  const cell = (pair) => {
    if (!pair) return make('td', {}, '·');
    const took = pair.round_trip_us;
    const text = took ? `${time(took.p50 * 1000)} / ${time(took.p99 * 1000)}` : 'lost';
    const lost = took && pair.lost ? ` ${(100 * pair.loss).toFixed(0)} % lost` : '';
    return make('td', {}, make('span', { class: `kind ${pair.outlier ? 'bad' : ''}` }, text + lost));
  };
  const head = make('tr', {}, ...[clock(picture.pings.at), ...hosts].map((text) => make('th', {}, text)));
  const rows = hosts.map((from) => make('tr', {}, make('th', {}, from), ...hosts.map((to) => cell(of.get(`${from} ${to}`)))));
  const gone = picture.pings.unreachable.map((it) => make('caption', { class: 'nothing' }, `${it.host} did not ping: ${it.why}`));
  return at('pings').replaceChildren(...gone, head, ...rows);
}

function ports(picture) {
  const head = make('tr', {}, ...['host', 'port', 'kind', 'counter', 'count'].map((text) => make('th', text === 'count' ? { class: 'number' } : {}, text)));
  const rows = picture.ports.map(([host, port, it]) => make('tr', {}, ...[host, port, it.kind, it.name].map((text) => make('td', {}, text)),
    make('td', { class: 'number' }, `${it.count}`)));
  at('ports').replaceChildren(...(rows.length ? [head, ...rows] : [make('caption', { class: 'nothing' }, 'all are zero')]));
}

const BAD = ['died', 'silent', 'slow-call', 'slow-poll', 'slow-segment', 'switched'];
const GOOD = ['opened', 'began', 'answers'];
function events(picture) {
  const known = (address) => (address === '::' ? '' : ` ↔ ${address}`);
  const rows = picture.events.map((event) => make('tr', {}, make('td', {}, clock(event.at)),
    make('td', {}, make('span', { class: `kind ${BAD.includes(event.kind) ? 'bad' : GOOD.includes(event.kind) ? 'good' : ''}` }, event.kind)),
    make('td', {}, event.program ? `${event.program} (${event.pid})` : ''), make('td', {}, event.host),
    make('td', {}, `${event.text} ${event.took ? time(event.took) : ''}${known(event.peer)}`)));
  at('events').replaceChildren(...(rows.length ? rows : [make('caption', { class: 'nothing' }, 'nothing happened')]));
}

const nothing = (text) => make('p', { class: 'nothing' }, text);

function choose(wanted) {
  grain = wanted;
  document.querySelector(`#grain input[value=${wanted}]`).checked = true;
}

let last = null;
function draw() {
  if (!grain || !document.querySelector('#grain input:checked')) choose(grain ?? (last.hosts.length > 1 ? 'by_host' : 'by_program'));
  tiles(last);
  matrix(last[grain]);
  latency(last[grain]);
  paths(last);
  talkers(last);
  pings(last);
  ports(last);
  events(last);
}

async function look() {
  const state = at('state');
  try {
    const answer = await fetch('/v1/picture');
    if (!answer.ok) throw new Error(`${answer.status}`);
    last = await answer.json();
    const silent = last.hosts.filter((host) => host.silent);
    state.className = silent.length ? 'lost' : '';
    state.textContent = silent.length ? `no answer from ${silent.map((host) => host.name).join(', ')}` : `as of ${clock(last.at)}`;
    draw();
  } catch (error) {
    state.className = 'lost';
    state.textContent = `the monitor does not answer (${error.message})${last ? `; this is as of ${clock(last.at)}` : ''}`;
  }
  setTimeout(look, EVERY);
}

at('grain').addEventListener('change', (event) => { choose(event.target.value); if (last) draw(); });
legend();
look();
