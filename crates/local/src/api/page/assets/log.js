// The log of a job: read as it grows, folded into groups, and only those lines in the document that are seen.

import { h, render } from './dom.js';
import { Folding } from './fold.js';
import { clock, count } from './format.js';
import { element, fillText } from './line.js';
import * as server from './server.js';

// How much text is taken in at once before the page may do something else.
const SLICE = 128 * 1024;
// Lines above and below what is seen.
const MARGIN = 12;
// How often a growing log is asked for.
const SHORTEST = 300;
// How many lines a search looks at at once.
const SEARCHED = 20000;
// What a page can reasonably hold.
const LARGEST = 64 * 1024 * 1024;

const later = () => new Promise((done) => { setTimeout(done); });

/** Shows the log of one job within `pane`. */
export class LogView extends Folding {
  constructor(pane, job, { live, failed }) {
    super(failed);
    this.job = job;
    this.decoder = new TextDecoder();
    this.offset = 0;
    this.tooLarge = false;
    this.error = null;
    this.drawn = new Map();
    this.following = live;
    this.times = localStorage.getItem('times') === 'true';
    this.query = '';
    this.matches = [];
    this.searched = 0;
    this.current = -1;
    this.abort = new AbortController();
    this.build(pane);
    this.endChanges = server.onChange(() => this.want());
    this.load();
  }

  /** Ends everything that goes on by itself. */
  close() {
    this.abort.abort();
    this.endChanges();
    this.resized.disconnect();
    window.removeEventListener('hashchange', this.onHash);
    document.removeEventListener('keydown', this.onKey);
  }

  // ---- the parts of the pane

  build(pane) {
    this.bar = element('div', 'log-bar');
    this.notice = element('div', 'log-notice');
    this.scroller = element('div', 'log');
    this.scroller.tabIndex = 0;
    this.scroller.setAttribute('role', 'region');
    this.scroller.setAttribute('aria-label', 'Log');
    this.size = element('div', 'log-size');
    this.window = element('div', 'log-rows');
    this.size.append(this.window);
    this.scroller.append(this.size);
    pane.append(this.bar, this.notice, this.scroller);
    this.scroller.classList.toggle('with-times', this.times);
    this.scroller.addEventListener('scroll', () => this.scrolled());
    this.scroller.addEventListener('click', (event) => this.clicked(event));
    this.resized = new ResizeObserver(() => this.measure());
    this.resized.observe(this.scroller);
    this.onHash = () => this.goToHash();
    window.addEventListener('hashchange', this.onHash);
    this.onKey = (event) => this.key(event);
    document.addEventListener('keydown', this.onKey);
    this.drawBar();
  }

  drawBar() {
    const found = this.matches.length;
    const position = this.query === '' ? '' : `${found === 0 ? 0 : this.current + 1}/${found}`;
    const allOpen = this.groups.every((group) => this.isOpen(group));
    const tool = (label, title, action, props = {}) =>
      h('button', { type: 'button', class: 'tool', title, onclick: action, ...props }, label);
    render(
      this.bar,
      h('div', { class: 'search', key: 'search' },
        h('input', {
          type: 'search', placeholder: 'Search the log', 'aria-label': 'Search the log', 'aria-keyshortcuts': '/',
          title: 'Press / to search, Enter for the next match', oninput: (event) => this.search(event.target.value),
          onkeydown: (event) => this.searchKey(event),
        }),
        h('span', { class: 'position', role: 'status' }, position),
        tool('↑', 'Previous match (Shift+Enter)', () => this.step(-1), { 'aria-label': 'Previous match', disabled: found === 0 }),
        tool('↓', 'Next match (Enter)', () => this.step(1), { 'aria-label': 'Next match', disabled: found === 0 })),
      h('span', { class: 'spread', key: 'spread' }),
      this.groups.length > 0 &&
        tool(allOpen ? 'Fold all' : 'Unfold all', 'Fold or unfold every group', () => this.toggleAll(!allOpen), { key: 'fold' }),
      tool('Times', 'Show when each line was written', () => this.toggleTimes(), { key: 'times', 'aria-pressed': String(this.times) }),
      tool(this.complete ? 'End' : 'Follow', this.complete ? 'Go to the end' : 'Stay at the end as lines come',
        () => this.toEnd(), { key: 'end', 'aria-pressed': this.complete ? null : String(this.following) }),
      h('a', {
        class: 'tool', key: 'raw', href: `/-/jobs/${this.job}/log?download=true`, download: '', title: 'Download the log as it came',
      }, 'Raw'),
    );
    render(this.notice, this.noticeText());
  }

  noticeText() {
    if (this.error) return h('p', { class: 'problem', role: 'alert' }, this.error);
    if (this.tooLarge) return h('p', { class: 'note' }, 'This is only the beginning: the log is too large for a page. Download it to see the rest.');
    if (this.terminal.lines.length > 1 || this.terminal.lines[0].text !== '') return null;
    return h('p', { class: 'note' }, this.complete ? 'The job wrote no log.' : 'Nothing has been written yet. Lines appear here as they come.');
  }

  // ---- reading

  // Something has changed on the server: perhaps this log.
  want() {
    this.wanted = true;
    if (!this.loading && !this.complete) this.load();
  }

  async load() {
    this.loading = true;
    const { signal } = this.abort;
    while (!signal.aborted && !this.complete && !this.tooLarge) {
      this.wanted = false;
      const began = performance.now();
      try {
        while (await this.read());
        this.error = null;
      } catch (error) {
        if (signal.aborted) return;
        this.error = error.message;
        break;
      }
      await new Promise((done) => { setTimeout(done, Math.max(0, SHORTEST - (performance.now() - began))); });
      if (!this.wanted) break;
    }
    this.loading = false;
    if (!signal.aborted) this.drawBar();
  }

  // Reads what is there now, or a part of it. Says whether there is more.
  async read() {
    const first = this.offset === 0;
    const part = await server.log(this.job, this.offset, this.abort.signal);
    const reader = part.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (let at = 0; at < value.length; at += SLICE) {
        this.take(this.decoder.decode(value.subarray(at, at + SLICE), { stream: true }));
        await later();
        if (this.abort.signal.aborted) return false;
      }
    }
    this.offset = part.next;
    this.complete = part.complete;
    this.tooLarge = this.offset > LARGEST;
    if (this.complete) this.take(this.decoder.decode());
    if (first || this.complete) this.firstPlace();
    this.drawBar();
    return part.more && !this.tooLarge;
  }

  take(text) {
    this.terminal.write(text);
    this.scan();
    this.arrange();
    this.extendSearch();
    this.draw();
  }

  resize(height) {
    this.size.style.height = `${height}px`;
  }

  // How large characters are, and how many fit. What was measured before no longer holds.
  measure() {
    const probe = this.row(-1, { text: 'm'.repeat(100), runs: null, time: 0 });
    this.window.append(probe);
    const text = probe.querySelector('.x');
    const inner = text.firstChild.getBoundingClientRect();
    const width = text.clientWidth;
    text.style.whiteSpace = 'pre';
    const character = text.firstChild.getBoundingClientRect().width / 100;
    text.textContent = 'm';
    const line = probe.getBoundingClientRect().height;
    probe.remove();
    if (inner.width === 0 || character === 0) return;
    const unit = { line, columns: Math.max(8, Math.floor(width / character)) };
    if (this.unit && unit.line === this.unit.line && unit.columns === this.unit.columns) {
      this.draw();
      return;
    }
    this.unit = unit;
    this.heights.clear();
    this.keepPlace(() => this.layout());
  }

  // Changes the layout without moving what is at the top of the view.
  keepPlace(change) {
    const row = this.rowAt(this.scroller.scrollTop);
    const line = this.rows[row];
    const within = this.scroller.scrollTop - this.offsets[row];
    change();
    if (this.following) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
    } else if (line !== undefined) {
      this.scroller.scrollTop = this.offsets[this.rowOf(line)] + within;
    }
    this.draw();
  }

  // ---- drawing

  draw() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (!this.abort.signal.aborted) this.drawNow();
    });
  }

  drawNow() {
    const top = this.scroller.scrollTop;
    const first = Math.max(0, this.rowAt(top) - MARGIN);
    const last = Math.min(this.rows.length - 1, this.rowAt(top + this.scroller.clientHeight) + MARGIN);
    const wanted = this.rows.slice(first, last + 1);
    const nodes = wanted.map((index) => this.drawRow(index));
    const kept = new Set(nodes);
    for (const node of [...this.window.childNodes]) if (!kept.has(node)) node.remove();
    const shown = new Set(wanted);
    for (const index of this.drawn.keys()) if (!shown.has(index)) this.drawn.delete(index);
    let place = this.window.firstChild;
    for (const node of nodes) {
      if (node === place) place = place.nextSibling;
      else this.window.insertBefore(node, place);
    }
    this.window.style.transform = `translateY(${this.offsets[first] ?? 0}px)`;
    this.correct(first, last);
  }

  // Takes the true heights of what is drawn: wide characters and tabs take more room than was thought.
  correct(first, last) {
    let wrong = -1;
    for (let row = first; row <= last; row += 1) {
      const index = this.rows[row];
      const actual = this.drawn.get(index).node.getBoundingClientRect().height;
      if (actual > 0 && Math.abs(actual - this.height(index)) > 0.5) {
        this.heights.set(index, actual);
        if (wrong < 0) wrong = row;
      }
    }
    if (wrong >= 0) this.keepPlace(() => this.layout(wrong));
  }

  drawRow(index) {
    const line = this.terminal.lines[index];
    const group = line.group && line.group.start === index ? line.group : null;
    const state = [
      line.version, this.query, this.times, index === this.target, this.matches[this.current] === index,
      group ? `${this.isOpen(group)} ${this.end(group)}` : '',
    ].join('|');
    const known = this.drawn.get(index);
    if (known?.state === state) return known.node;
    const node = group ? this.headerRow(index, line, group) : this.row(index, line);
    node.classList.toggle('target', index === this.target);
    node.classList.toggle('current', this.matches[this.current] === index);
    this.drawn.set(index, { node, state });
    return node;
  }

  row(index, line) {
    const node = element('div', 'row');
    const text = element('span', 'x');
    this.fill(text, line);
    node.append(this.number(index), this.timeOf(line), text);
    return node;
  }

  headerRow(index, line, group) {
    const open = this.isOpen(group);
    const node = element('div', `row head${group.kind === '~~~' ? ' quiet' : ''}`);
    const button = element('button', 'x');
    button.type = 'button';
    button.setAttribute('aria-expanded', String(open));
    button.dataset.group = String(group.index);
    const title = element('span', 'title');
    this.fill(title, line, line.text.length - group.title.length);
    const lines = this.end(group) - group.start - 1;
    const note = element('span', 'note');
    note.textContent = [lines > 0 && !open ? count(lines, 'line') : '', this.took(group)].filter(Boolean).join(' · ');
    button.append(title, note);
    node.append(this.number(index), this.timeOf(line), button);
    return node;
  }

  number(index) {
    const link = element('a', 'n');
    link.href = `#L${index + 1}`;
    link.dataset.n = String(index + 1);
    link.setAttribute('aria-label', `Line ${index + 1}`);
    return link;
  }

  timeOf(line) {
    const node = element('span', 't');
    if (line.time > 0) {
      node.dataset.t = clock(line.time);
      node.title = new Date(line.time).toISOString();
    }
    return node;
  }

  fill(node, line, from = 0) {
    fillText(node, line, { from, styles: this.terminal.styles, query: this.query, job: this.job });
  }

  // ---- what people do

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const atEnd = scrollTop + clientHeight >= scrollHeight - 2 * this.lineHeight;
    const moved = scrollTop < (this.lastTop ?? 0);
    this.lastTop = scrollTop;
    const following = !this.complete && (atEnd || (this.following && !moved));
    if (following !== this.following) {
      this.following = following;
      this.drawBar();
    }
    this.draw();
  }

  clicked(event) {
    const number = event.target.closest('a.n');
    if (number) {
      event.preventDefault();
      history.replaceState(history.state, '', number.getAttribute('href'));
      this.target = Number(number.dataset.n) - 1;
      this.draw();
      return;
    }
    const header = event.target.closest('button[data-group]');
    if (header && !event.target.closest('a')) {
      const group = this.groups[Number(header.dataset.group)];
      group.open = !this.isOpen(group);
      this.following = false;
      this.refold();
      this.window.querySelector(`button[data-group="${group.index}"]`)?.focus();
    }
  }

  refold() {
    this.fresh = true;
    this.keepPlace(() => this.arrange());
    this.drawNow();
    this.drawBar();
  }

  toggleAll(open) {
    for (const group of this.groups) group.open = open;
    this.refold();
  }

  toggleTimes() {
    this.times = !this.times;
    localStorage.setItem('times', String(this.times));
    this.scroller.classList.toggle('with-times', this.times);
    this.measure();
    this.drawBar();
  }

  toEnd() {
    const last = this.groups.at(-1);
    if (last && !this.isOpen(last)) {
      last.open = true;
      this.refold();
    }
    this.following = !this.complete;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.drawBar();
    this.draw();
  }

  // Where to look first: at the line in the address, at the end of a failure, or at what happens now.
  firstPlace() {
    if (this.placed) return;
    this.placed = this.goToHash() || this.complete;
    if (this.complete && this.failed && this.target === undefined) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
      this.draw();
    }
  }

  goToHash() {
    const found = /^#L(\d+)$/.exec(location.hash);
    if (!found) return false;
    const line = Number(found[1]) - 1;
    if (line < 0 || line >= this.terminal.lines.length) return false;
    this.target = line;
    this.show(line);
    return true;
  }

  // Unfolds and scrolls so that a line is seen.
  show(line) {
    this.following = false;
    const group = this.groupAt(line);
    if (group && group.start !== line && !this.isOpen(group)) {
      group.open = true;
      this.fresh = true;
      this.arrange();
    }
    const place = () => {
      const row = this.rowOf(line);
      this.scroller.scrollTop = this.offsets[row] - this.scroller.clientHeight / 3;
      this.drawNow();
    };
    place();
    // Heights on the way may have been guessed wrong; now they are known.
    place();
    this.drawBar();
  }

  key(event) {
    const typing = event.target.closest('input, textarea, select, dialog');
    if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      this.bar.querySelector('input').focus();
    }
  }

  searchKey(event) {
    if (event.key === 'Enter') this.step(event.shiftKey ? -1 : 1);
    else if (event.key === 'Escape') this.scroller.focus();
    else return;
    event.preventDefault();
  }

  // ---- searching

  async search(query) {
    this.query = query.toLowerCase();
    this.matches = [];
    this.searched = 0;
    this.current = -1;
    const asked = this.query;
    do {
      this.extendSearch();
      if (this.current < 0 && this.matches.length > 0) this.step(1);
      await later();
    } while (this.query === asked && asked !== '' && this.searched < this.terminal.lines.length - 1);
    this.drawBar();
    this.draw();
  }

  // Looks at some more lines; called again as lines come.
  extendSearch() {
    if (this.query === '') return;
    const { lines } = this.terminal;
    const end = Math.min(lines.length, this.searched + SEARCHED);
    for (; this.searched < end; this.searched += 1) {
      if (lines[this.searched].text.toLowerCase().includes(this.query)) this.matches.push(this.searched);
    }
  }

  step(by) {
    if (this.matches.length === 0) return;
    this.current = (this.current + by + this.matches.length) % this.matches.length;
    this.show(this.matches[this.current]);
  }
}
