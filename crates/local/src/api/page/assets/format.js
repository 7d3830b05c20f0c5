// Times, sizes and names as people read them.

import { h } from './dom.js';

// How far the server's clock is ahead of this one's, in milliseconds.
let skew = 0;

/** Learns the server's time from an answer's date, which is whole seconds: smaller differences are noise. */
export function learnTime(date) {
  const difference = Date.parse(date) - Date.now();
  if (Number.isFinite(difference)) skew = Math.abs(difference) < 2000 ? 0 : difference;
}

/** The server's time. */
export function now() {
  return Date.now() + skew;
}

/** A length of time: `4s`, `2m 05s`, `1h 04m`. */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const two = (number) => String(number).padStart(2, '0');
  if (seconds < 1 && milliseconds > 0) return '<1s';
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${two(Math.floor(seconds / 60) % 60)}m`;
  return `${Math.floor(seconds / 86400)}d ${Math.floor(seconds / 3600) % 24}h`;
}

/** How long ago: `just now`, `3 min ago`. */
export function ago(at, then = now()) {
  const seconds = Math.floor((then - at) / 1000);
  if (seconds < 10) return 'just now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(at).toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: 'numeric' });
}

/** A time of day with its date in the title. */
export function clock(at) {
  return new Date(at).toLocaleTimeString(undefined, { hour12: false });
}

/** An element that says how long ago something was, and goes on saying it. */
export function sinceElement(at) {
  return h('time', { datetime: new Date(at).toISOString(), title: new Date(at).toLocaleString(), 'data-ago': at }, ago(at));
}

/** An element with the time from `from` until `to`, or until now for as long as it goes on. */
export function spanElement(from, to, props = {}) {
  if (from === null || from === undefined) return null;
  if (to !== null && to !== undefined) return h('span', props, span(to - from));
  return h('span', { ...props, 'data-since': from }, span(now() - from));
}

/** Moves every running clock on. Once a second is enough. */
export function tick() {
  for (const node of document.querySelectorAll('[data-since]')) put(node, span(now() - Number(node.dataset.since)));
  for (const node of document.querySelectorAll('[data-ago]')) put(node, ago(Number(node.dataset.ago)));
}

function put(node, text) {
  if (node.textContent !== text) node.firstChild.data = text;
}

/** A number of bytes. */
export function bytes(count) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  let value = count;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** `1 job`, `2 jobs`. */
export function count(number, noun) {
  return `${number.toLocaleString()} ${noun}${number === 1 ? '' : 's'}`;
}

/** A commit as people say it. */
export function shortCommit(commit) {
  return /^[0-9a-f]{40}$/.test(commit) ? commit.slice(0, 8) : commit;
}

const EMOJI = {
  rocket: '🚀', hammer: '🔨', wrench: '🔧', pipeline: '📋', docker: '🐳', package: '📦', white_check_mark: '✅',
  x: '❌', warning: '⚠️', test_tube: '🧪', lint_roller: '🧹', broom: '🧹', lock: '🔒', key: '🔑', shipit: '🚢',
  ship: '🚢', fire: '🔥', tada: '🎉', mag: '🔍', books: '📚', memo: '📝', gear: '⚙️', zap: '⚡', bug: '🐛',
  sparkles: '✨', hourglass: '⌛', cloud: '☁️', chart_with_upwards_trend: '📈', floppy_disk: '💾', git: '🌿',
  rust: '🦀', crab: '🦀', python: '🐍', golang: '🐹', node: '🟩', go: '🐹', kubernetes: '☸️', linux: '🐧',
  mac: '🍎', macos: '🍎', apple: '🍎', truck: '🚚', book: '📖', ruby: '💎', rspec: '💎', java: '☕', npm: '🟥', yarn: '🧶',
  bash: '🐚', shell: '🐚', terraform: '🏗️', construction: '🚧', seedling: '🌱', recycle: '♻️', label: '🏷️', hammer_and_wrench: '🛠️',
  microscope: '🔬', shield: '🛡️', globe_with_meridians: '🌐', stopwatch: '⏱️', heavy_check_mark: '✔️', no_entry: '⛔', wave: '👋',
  windows: '🪟', arrow_up: '⬆️', point_up: '☝️', robot_face: '🤖', eyes: '👀', bell: '🔔',
};

/** Text with the `:names:` of well-known emoji replaced; others stay as they are. */
export function emoji(text) {
  return text.replace(/:([a-z_]+):/g, (whole, name) => EMOJI[name] ?? whole);
}
