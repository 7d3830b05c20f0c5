// Which lines of a log are shown, and where: groups that fold, and the height of everything above a line.

import { Terminal, groupOf } from './ansi.js';
import { span } from './format.js';

/** A log with its groups. Whoever shows it says what happens in `resize`. */
export class Folding {
  constructor(failed) {
    this.terminal = new Terminal();
    this.failed = failed;
    this.complete = false;
    // Groups in order; `open` is what a person chose.
    this.groups = [];
    this.scanned = 0;
    // The lines that are not folded away, and where each begins, in pixels.
    this.rows = [];
    this.offsets = [0];
    // Heights that were measured; others are worked out.
    this.heights = new Map();
  }

  // Looks for group headers in the lines that are whole.
  scan() {
    const { lines } = this.terminal;
    const end = this.complete ? lines.length : lines.length - 1;
    for (; this.scanned < end; this.scanned += 1) {
      const line = lines[this.scanned];
      const meaning = groupOf(line.text);
      if (meaning === 'reopen') {
        line.hidden = true;
        const group = this.groups.at(-1);
        if (group) group.reopened = true;
        this.fresh = true;
      } else if (meaning !== null) {
        const group = { ...meaning, index: this.groups.length, start: this.scanned, reopened: false, open: undefined };
        line.group = group;
        this.groups.push(group);
        this.fresh = true;
      }
    }
  }

  // ---- folding and places

  end(group) {
    return this.groups[group.index + 1]?.start ?? this.terminal.lines.length;
  }

  isOpen(group) {
    if (group.open !== undefined) return group.open;
    if (group.kind === '+++' || group.reopened) return true;
    // Where it happens, and where it failed.
    return group.index === this.groups.length - 1 && (!this.complete || this.failed);
  }

  // Works out which lines are shown: all again after folding, else only what is new.
  arrange() {
    const { lines } = this.terminal;
    // What follows the last line end is a line once something is in it.
    const length = lines.at(-1).text === '' ? lines.length - 1 : lines.length;
    if (this.fresh || this.complete !== this.arrangedComplete) {
      this.rows = [];
      this.arranged = 0;
      this.fresh = false;
      this.arrangedComplete = this.complete;
    }
    let from = this.rows.length;
    if (from > 0) from -= 1;
    let line = this.arranged ?? 0;
    let group = this.groupAt(line);
    while (line < length) {
      if (lines[line].group) group = lines[line].group;
      const head = group !== null && group.start === line;
      if (!lines[line].hidden && (group === null || head || this.isOpen(group))) this.rows.push(line);
      if (head && !this.isOpen(group)) line = this.end(group);
      else line += 1;
    }
    this.arranged = Math.max(line, this.arranged ?? 0);
    this.layout(Math.min(from, this.rows.length));
  }

  groupAt(line) {
    let low = 0;
    let high = this.groups.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.groups[middle].start <= line) low = middle + 1;
      else high = middle;
    }
    return this.groups[low - 1] ?? null;
  }

  // Where each row begins, from row `from` on.
  layout(from = 0) {
    this.offsets.length = from + 1;
    this.offsets[0] = 0;
    for (let row = from; row < this.rows.length; row += 1) {
      this.offsets.push(this.offsets[row] + this.height(this.rows[row]));
    }
    this.resize(this.offsets[this.rows.length]);
  }

  height(line) {
    const known = this.heights.get(line);
    if (known !== undefined) return known;
    const { length } = this.terminal.lines[line].text;
    return this.lineHeight * Math.max(1, Math.ceil(length / this.columns));
  }

  get lineHeight() {
    return this.unit?.line ?? 20;
  }

  get columns() {
    return this.unit?.columns ?? 120;
  }

  rowAt(y) {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  }

  // The row of a line, or of the header it is folded under.
  rowOf(line) {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.rows[middle] <= line) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  }

  // How long a group took: until the next one began, or until the last line so far.
  took(group) {
    const { lines } = this.terminal;
    const end = this.groups[group.index + 1] ? lines[this.end(group)].time : this.lastTime();
    const begin = lines[group.start].time;
    return begin > 0 && end - begin >= 1000 ? span(end - begin) : '';
  }

  lastTime() {
    return this.terminal.time;
  }
}
