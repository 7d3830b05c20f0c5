// One line of a log as elements.

import { paletteColour } from './ansi.js';
import { emoji } from './format.js';

/** A new element. */
export function element(tag, className) {
  const node = document.createElement(tag);
  node.className = className;
  return node;
}

/** The text from `from` on, in pieces of one style each, with what is searched for marked. */
export function fillText(node, line, { from, styles, query, job }) {
  const { text } = line;
  const runs = line.runs ?? [0, 0];
  const marks = marksIn(text, query);
  for (let i = 0; i < runs.length; i += 2) {
    const end = Math.min(runs[i + 2] ?? text.length, text.length);
    let at = Math.max(runs[i], from);
    while (at < end) {
      const mark = marks.find(([, last]) => last > at);
      const inside = mark !== undefined && mark[0] <= at;
      const stop = mark === undefined ? end : Math.min(end, inside ? mark[1] : mark[0]);
      node.append(piece(text.slice(at, stop), styles[runs[i + 1]], { marked: inside, title: from > 0, job }));
      at = stop;
    }
  }
}

function marksIn(text, query) {
  if (query === '') return [];
  const found = [];
  const folded = text.toLowerCase();
  for (let at = folded.indexOf(query); at >= 0; at = folded.indexOf(query, at + query.length)) {
    found.push([at, at + query.length]);
  }
  return found;
}

// Addresses in plain text; a full stop or bracket behind one is not part of it.
const ADDRESS = /https?:\/\/[^\s"'<>`\\^{|}]+[^\s"'<>`\\^{|}.,:;!?)\]]/g;

function piece(text, style, { marked, title, job }) {
  const node = title ? styled(emoji(text), style, job) : linked(text, style, job);
  if (!marked) return node;
  const mark = document.createElement('mark');
  mark.append(node);
  return mark;
}

// A piece of text with the addresses in it as links.
function linked(text, style, job) {
  if (style.link || !text.includes('://')) return styled(text, style, job);
  const whole = document.createDocumentFragment();
  let at = 0;
  for (const { 0: link, index } of text.matchAll(ADDRESS)) {
    if (index > at) whole.append(styled(text.slice(at, index), style, job));
    whole.append(styled(link, { ...style, link }, job));
    at = index + link.length;
  }
  if (at < text.length) whole.append(styled(text.slice(at), style, job));
  return whole;
}

// A piece of text in its style.
function styled(text, style, job) {
  const node = style.link ? element('a', '') : element('span', '');
  if (style.link) {
    const artifact = /^artifact:\/\//i.test(style.link);
    node.href = artifact ? `/-/jobs/${job}/artifact?path=${encodeURIComponent(style.link.slice(11))}` : style.link;
    node.target = '_blank';
    node.rel = 'noopener noreferrer';
  }
  node.textContent = text;
  const [fg, bg] = style.inverse ? [style.bg ?? 'inverse', style.fg ?? 'inverse'] : [style.fg, style.bg];
  // The theme's own text colour need not be readable on a ground that the job chose.
  colour(node, 'f', 'color', fg ?? readableOn(bg));
  colour(node, 'b', 'backgroundColor', bg);
  for (const name of ['bold', 'dim', 'italic', 'underline', 'strike']) if (style[name]) node.classList.add(name);
  return node;
}

// Black or white for text on one of the 240 fixed colours or any; the first sixteen change with the theme.
function readableOn(ground) {
  if (ground === null || ground === 'inverse' || ground < 16) return null;
  const [r, g, b] = (typeof ground === 'number' ? paletteColour(ground) : ground).match(/\d+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? 'rgb(0 0 0)' : 'rgb(255 255 255)';
}

function colour(node, letter, property, value) {
  if (value === null) return;
  if (value === 'inverse') node.classList.add(`${letter}-inverse`);
  else if (typeof value === 'number' && value < 16) node.classList.add(`${letter}${value}`);
  else node.style[property] = typeof value === 'number' ? paletteColour(value) : value;
}
