// Draws /v1/picture twice a second. Names come from routers and files: they are set as text, never as HTML.

const EVERY = 500;
const STEPS = [0.25, 0.5, 0.75, 0.9]; // upper ends of all colours but the last
const DRAWN = 3000; // links up to which the fabric is drawn
const FULLEST = 20;
const BAD = ['alarm', 'undo', 'refused', 'silent', 'drift', 'gave-up', 'no-move'];
const GOOD = ['cleared', 'kept', 'applied'];

const at = (id) => document.getElementById(id);

/** An element with attributes and children; strings become text. */
function make(name, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'rect', 'circle', 'line', 'text', 'title'].includes(name);
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function rate(bits) {
  const units = ['b/s', 'kb/s', 'Mb/s', 'Gb/s', 'Tb/s'];
  let power = 0;
  while (bits >= 1000 && power + 1 < units.length) { bits /= 1000; power += 1; }
  return `${bits >= 100 ? bits.toFixed(0) : bits.toFixed(1)} ${units[power]}`;
}
const percent = (link) => (link.load === null ? '–' : `${((100 * link.load) / link.capacity).toFixed(0)} %`);
/** Marks that the port's queue counted are exact; others are estimated from samples. */
const marks = (link) => (link.marks_from === 'queue' ? `${link.marks}` : `≈ ${link.marks}`);
/** When a periodic job sends. */
const bursts = (job) => (job.bursts === null ? ''
  : `${(job.bursts.length_ns / 1e9).toFixed(1)} s of every ${(job.bursts.period_ns / 1e9).toFixed(1)} s`);
const clock = (nanos) => new Date(nanos / 1e6).toLocaleTimeString([], { hour12: false });
/** The alarms of a link, by marks and by probes. */
const alarms = (link) => [
  ...(link.alarm ? [`${link.alarm} alarm`] : []),
  ...link.probes.map((it) => `probes: ${it.fault === 'loss' ? `${(it.lost_per_mille / 10).toFixed(1)} % lost`
    : `${(it.delay_ns / 1e6).toFixed(2)} ms delay`}, by ${it.votes} of ${it.hosts} hosts${it.avoided ? ', avoided by jobs' : ''}`),
];
const full = (link) => (link.load === null ? -1 : link.load / link.capacity);

function colour(link) {
  if (link.load === null) return 'none';
  const step = STEPS.findIndex((end) => full(link) < end);
  return `l${step < 0 ? STEPS.length : step}`;
}

function tiles(picture) {
  const alarmed = picture.links.filter((link) => alarms(link).length > 0).length;
  const down = picture.links.filter((link) => !link.up).length;
  const fullest = Math.max(-1, ...picture.links.map(full));
  const unread = Object.keys(picture.unread).length;
  const unreadable = Object.keys(picture.unreadable_records ?? {});
  const rows = [
    ['this controller', picture.dry_run ? 'dry run' : picture.steers ? 'steers' : 'watches', !picture.steers],
    ['routers', `${picture.nodes.filter((node) => node.tier > 0).length}`, false],
    ['not readable', `${unread}`, unread > 0],
    ...(unreadable.length > 0 ? [['records not readable', unreadable.slice(0, 3).join(', ') + (unreadable.length > 3 ? ` and ${unreadable.length - 3} others` : ''), true]] : []),
    ['links down', `${down}`, down > 0],
    ['fullest link', fullest < 0 ? '–' : `${(100 * fullest).toFixed(0)} %`, fullest > 0.9],
    ['alarms', `${alarmed}`, alarmed > 0],
    ['probed paths', `${picture.probes.paths}`, false],
    ['moves', `${picture.moves.length}`, false],
    ['jobs', `${picture.jobs.length}`, false],
    ['samples', `${picture.heard.samples}`, false],
    ['sFlow refused', `${picture.heard.refused}`, picture.heard.refused > 0],
  ];
  at('tiles').replaceChildren(...rows.map(([about, value, bad]) =>
    make('div', {}, make('dt', {}, about), make('dd', bad ? { class: 'bad' } : {}, value))));
}

/** Where each node is drawn: tiers from the hosts up, each spread over the width. */
function places(nodes, width, height) {
  const top = Math.max(1, ...nodes.map((node) => node.tier));
  const placed = new Map();
  for (let tier = 0; tier <= top; tier += 1) {
    const row = nodes.filter((node) => node.tier === tier);
    row.forEach((node, index) => placed.set(node.name, {
      x: (width * (index + 0.5)) / row.length,
      y: height - 30 - ((height - 60) * tier) / top,
      host: tier === 0,
    }));
  }
  return placed;
}

function fabric(picture) {
  if (picture.links.length > DRAWN) {
    const words = `${picture.links.length} links are too many to draw; the fullest are listed below.`;
    at('fabric').replaceChildren(make('p', { class: 'nothing' }, words));
    return;
  }
  const [width, height] = [Math.max(700, 90 * Math.max(...picture.nodes.map((_, index, all) =>
    all.filter((node) => node.tier === all[index].tier).length))), 420];
  const placed = places(picture.nodes, width, height);
  const lines = [];
  const rings = [];
  const beside = new Map(); // several cables between the same two nodes lie beside each other
  for (const link of picture.links) {
    const [from, to] = [placed.get(link.from), placed.get(link.to)];
    if (!from || !to) continue;
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const pair = `${link.from} ${link.to}`;
    const order = beside.get(pair) ?? 0;
    beside.set(pair, order + 1);
    const off = 3 + 7 * order; // each direction keeps to its right
    const [dx, dy] = [(-(to.y - from.y) / length) * off, ((to.x - from.x) / length) * off];
    const [x1, y1, x2, y2] = [from.x + dx, from.y + dy, to.x + dx, to.y + dy];
    const classes = [colour(link), link.up ? '' : 'down', alarms(link).length ? 'alarm' : ''].join(' ').trim();
    const words = `${link.from} ${link.port} → ${link.to}: ${percent(link)} of ${rate(link.capacity)}, ${marks(link)} marks`
      + alarms(link).map((it) => `, ${it}`).join('') + (link.up ? '' : ', down');
    lines.push(make('line', { x1, y1, x2, y2, class: classes, 'data-link': `${link.from} ${link.port}` }, make('title', {}, words)));
    if (alarms(link).length) rings.push(make('circle', { cx: x1 + (x2 - x1) * 0.3, cy: y1 + (y2 - y1) * 0.3, r: 9 }));
  }
  const boxes = picture.nodes.map((node) => {
    const { x, y, host } = placed.get(node.name);
    const wide = Math.max(36, 8 * node.name.length + 8);
    return make('g', host ? { class: 'host' } : {},
      make('rect', { x: x - wide / 2, y: y - 13, width: wide, height: 26, rx: 6 }), make('text', { x, y }, node.name));
  });
  at('fabric').replaceChildren(make('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img' },
    make('title', {}, 'The fabric: hosts at the bottom, their routers above'), ...lines, ...rings, ...boxes));
}

function legend() {
  const words = ['not reported', ...STEPS.map((end) => `below ${100 * end} %`), '90 % and more'];
  const names = ['none', ...STEPS.map((_, step) => `l${step}`), `l${STEPS.length}`];
  at('legend').replaceChildren(...words.map((word, index) => make('span', {}, make('i', { class: names[index] }), word)));
}

function table(id, heads, rows, nothing) {
  const head = make('tr', {}, ...heads.map(([word, number]) => make('th', number ? { class: 'number' } : {}, word)));
  at(id).replaceChildren(...(rows.length ? [head, ...rows] : [make('caption', { class: 'nothing' }, nothing)]));
}
const cell = (text, kind) => make('td', kind ? { class: kind } : {}, text);

function draw(picture) {
  tiles(picture);
  fabric(picture);
  table('moves', [['decided'], ['router'], ['destination'], ['from → to'], ['flows', true], ['stage'], ['why']],
    picture.moves.map((it) => make('tr', {}, cell(clock(it.decided)), cell(it.router), cell(it.destination),
      cell(`${it.from} → ${it.to.join(', ')}`), cell(`${it.flows}`, 'number'), cell(it.stage),
      make('td', { class: 'words' }, it.reason, ...it.commands.map((command) => make('code', {}, command))))), 'nothing was moved');
  table('jobs', [['announced'], ['job'], ['flows', true], ['together', true], ['fullest link planned', true], [''], ['sends']],
    picture.jobs.map((it) => make('tr', {}, cell(clock(it.announced)), cell(it.name), cell(`${it.flows}`, 'number'),
      cell(rate(it.rate), 'number'), cell(`${(it.fullest_per_mille / 10).toFixed(0)} %`, 'number'),
      cell(it.begun ? 'begun' : 'not seen yet'), cell(bursts(it)))), 'none was announced');
  const isListed = (link) => link.load !== null || alarms(link).length > 0;
  const order = (a, b) => b.probes.length - a.probes.length || full(b) - full(a);
  const fullest = picture.links.filter(isListed).sort(order).slice(0, FULLEST);
  table('links', [['link'], ['load', true], ['full', true], ['reserved', true], ['marks', true], ['alarm']],
    fullest.map((link) => make('tr', {}, cell(`${link.from} ${link.port} → ${link.to}`), cell(link.load === null ? '–' : rate(link.load), 'number'),
      cell(percent(link), 'number'), cell(link.reserved ? rate(link.reserved) : '–', 'number'), cell(marks(link), 'number'), cell(alarms(link).join('; ')))), 'nothing was reported yet');
  table('events', [['when'], ['what'], ['where'], ['']], picture.events.slice(0, 200).map((event) => {
    const kind = BAD.includes(event.what) ? 'kind bad' : GOOD.includes(event.what) ? 'kind good' : 'kind';
    return make('tr', {}, cell(clock(event.at)), make('td', {}, make('span', { class: kind }, event.what)),
      cell(`${event.router} ${event.port ?? ''}`), cell(event.text, 'words'));
  }), 'nothing has happened');
  const state = at('state');
  state.className = '';
  state.textContent = `${picture.holder}, ${clock(picture.at)}` + (picture.other ? `; ${picture.other} steers` : '');
}

async function turn() {
  try {
    const answer = await fetch('/v1/picture');
    if (!answer.ok) throw new Error(`${answer.status}`);
    draw(await answer.json());
  } catch {
    at('state').className = 'lost';
    at('state').textContent = 'the controller does not answer; this is what was last known';
  }
  setTimeout(turn, EVERY);
}

legend();
turn();
