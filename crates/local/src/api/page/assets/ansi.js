// What a terminal would show: text with escape sequences becomes lines with styles. Fed piece by piece; a piece
// may end anywhere, even within a sequence.

// Text runs up to the next of these.
const CONTROL = /[\x00-\x08\x0a-\x1f\x7f]/g;
// An unfinished sequence that is longer than this is no sequence.
const LONGEST_SEQUENCE = 16384;
// How far up the cursor may go: progress displays redraw their last lines.
const REACH = 500;

const PLAIN = Object.freeze({
  fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false, link: null,
});

/** A screen without a bottom. `lines` are `{ text, runs, time, version }`; `runs` lists start and style in turn. */
export class Terminal {
  constructor() {
    this.lines = [blank()];
    this.row = 0;
    this.column = 0;
    this.pen = PLAIN;
    this.style = 0;
    this.styles = [PLAIN];
    this.known = new Map([[JSON.stringify(PLAIN), 0]]);
    this.time = 0;
    this.rest = '';
  }

  /** Takes the next piece. */
  write(piece) {
    const text = this.rest + piece;
    this.rest = '';
    let at = 0;
    while (at < text.length) {
      CONTROL.lastIndex = at;
      const found = CONTROL.exec(text);
      const control = found === null ? text.length : found.index;
      if (control > at) this.put(text.slice(at, control));
      if (control === text.length) return;
      at = this.control(text, control);
      if (at < 0) {
        this.rest = text.slice(control);
        return;
      }
    }
  }

  // Obeys the control character at `at`; returns where to go on, or -1 if more is needed.
  control(text, at) {
    switch (text.charCodeAt(at)) {
      case 10: this.newline(); return at + 1;
      case 13: this.column = 0; return at + 1;
      case 8: this.column = Math.max(0, this.column - 1); return at + 1;
      case 27: return this.escape(text, at);
      default: return at + 1;
    }
  }

  escape(text, at) {
    const giveUp = text.length - at > LONGEST_SEQUENCE ? at + 1 : -1;
    const kind = text[at + 1];
    if (kind === undefined) return -1;
    if (kind === '[') {
      let end = at + 2;
      while (end < text.length && (text.charCodeAt(end) < 0x40 || text.charCodeAt(end) > 0x7e)) end += 1;
      if (end >= text.length) return giveUp;
      this.command(text[end], text.slice(at + 2, end));
      return end + 1;
    }
    if (kind === ']' || kind === '_' || kind === 'P' || kind === '^' || kind === 'X') {
      const bell = text.indexOf('\x07', at + 2);
      const terminator = text.indexOf('\x1b\\', at + 2);
      if (bell < 0 && terminator < 0) return giveUp;
      const short = terminator < 0 || (bell >= 0 && bell < terminator);
      this.message(kind, text.slice(at + 2, short ? bell : terminator));
      return short ? bell + 1 : terminator + 2;
    }
    if (kind === '(' || kind === ')') return at + 3 <= text.length ? at + 3 : -1;
    return at + 2;
  }

  command(letter, given) {
    const first = Number.parseInt(given, 10);
    const many = Math.max(1, first || 1);
    switch (letter) {
      case 'm': this.colour(given); break;
      case 'K': this.erase(first || 0); break;
      case 'A': this.row = Math.max(0, this.lines.length - REACH, this.row - many); break;
      case 'B': this.row = Math.min(this.lines.length - 1, this.row + many); break;
      case 'C': this.column += Math.min(many, 1000); break;
      case 'D': this.column = Math.max(0, this.column - many); break;
      case 'G': this.column = Math.min(many, 1000) - 1; break;
      default: break;
    }
  }

  // Time stamps of the agent (`_bk;t=…`) and links; other messages are for real terminals.
  message(kind, text) {
    if (kind === '_') {
      const stamp = /^bk;t=(\d+)/.exec(text);
      if (stamp !== null) {
        this.time = Number(stamp[1]);
        this.line().time ||= this.time;
      }
      return;
    }
    if (kind !== ']') return;
    if (text.startsWith('8;')) {
      const address = text.slice(text.indexOf(';', 2) + 1);
      this.change({ link: safeLink(address) });
    } else if (text.startsWith('1339;') || text.startsWith('1338;')) {
      this.inlineLink(attributes(text.slice(5)));
    }
  }

  // The service's own inline links and pictures; pictures are shown as links to them.
  inlineLink(given) {
    const address = safeLink(given.url ?? '');
    const before = this.pen.link;
    this.change({ link: address });
    this.put(given.content || given.alt || given.url || '');
    this.change({ link: before });
  }

  line() {
    return this.lines[this.row];
  }

  newline() {
    this.row += 1;
    this.column = 0;
    if (this.row === this.lines.length) this.lines.push(blank());
  }

  put(text) {
    const line = this.line();
    line.time ||= this.time;
    line.version += 1;
    if (this.column > line.text.length) append(line, ' '.repeat(this.column - line.text.length), 0);
    if (this.column === line.text.length) append(line, text, this.style);
    else overwrite(line, this.column, text, this.style);
    this.column += text.length;
  }

  erase(which) {
    const line = this.line();
    line.version += 1;
    if (which === 2) {
      line.text = '';
      line.runs = null;
    } else if (which === 1) {
      overwrite(line, 0, ' '.repeat(Math.min(this.column, line.text.length)), 0);
    } else if (this.column < line.text.length) {
      const styles = perCharacter(line).slice(0, this.column);
      restyle(line, line.text.slice(0, this.column), styles);
    }
  }

  change(changes) {
    this.pen = { ...this.pen, ...changes };
    const name = JSON.stringify(this.pen);
    let style = this.known.get(name);
    if (style === undefined) {
      style = this.styles.push(this.pen) - 1;
      this.known.set(name, style);
    }
    this.style = style;
  }

  colour(given) {
    const changes = {};
    const parts = given.split(';');
    for (let i = 0; i < parts.length; i += 1) {
      // With colons one part holds everything; with semicolons a colour takes up the parts behind it.
      const own = parts[i].split(':').map(Number);
      const together = own.length > 1;
      if (own[0] === 38 || own[0] === 48) {
        const rest = together ? own.slice(1) : parts.slice(i + 1).map(Number);
        const [value, used] = extended(rest, together);
        if (value !== undefined) changes[own[0] === 38 ? 'fg' : 'bg'] = value;
        if (!together) i += used;
      } else {
        Object.assign(changes, attribute(own[0], this.pen.link));
      }
    }
    this.change(changes);
  }
}

// What one number of a colour sequence sets.
function attribute(n, link) {
  if (n >= 30 && n <= 37) return { fg: n - 30 };
  if (n >= 40 && n <= 47) return { bg: n - 40 };
  if (n >= 90 && n <= 97) return { fg: n - 82 };
  if (n >= 100 && n <= 107) return { bg: n - 92 };
  switch (n) {
    case 0: return { ...PLAIN, link };
    case 1: return { bold: true };
    case 2: return { dim: true };
    case 3: return { italic: true };
    case 4: case 21: return { underline: true };
    case 7: return { inverse: true };
    case 9: return { strike: true };
    case 22: return { bold: false, dim: false };
    case 23: return { italic: false };
    case 24: return { underline: false };
    case 27: return { inverse: false };
    case 29: return { strike: false };
    case 39: return { fg: null };
    case 49: return { bg: null };
    default: return {};
  }
}

function blank() {
  return { text: '', runs: null, time: 0, version: 0 };
}

// `5;n` is one of 256 colours, `2;r;g;b` any. Together there may be a colour space before the three numbers.
function extended(numbers, together) {
  if (numbers[0] === 5) return [clamp(numbers[1]), 2];
  if (numbers[0] !== 2) return [undefined, 0];
  const [r, g, b] = numbers.slice(together && numbers.length >= 5 ? 2 : 1).map(clamp);
  return [`rgb(${r ?? 0} ${g ?? 0} ${b ?? 0})`, 4];
}

function clamp(number) {
  return Math.min(255, Math.max(0, number || 0));
}

function append(line, text, style) {
  const at = line.text.length;
  const { runs } = line;
  const last = runs === null ? 0 : runs[runs.length - 1];
  if (last !== style) {
    if (runs === null) line.runs = at === 0 ? [0, style] : [0, 0, at, style];
    else if (runs[runs.length - 2] === at) runs[runs.length - 1] = style;
    else runs.push(at, style);
  }
  line.text += text;
}

function overwrite(line, at, text, style) {
  const styles = perCharacter(line);
  for (let i = 0; i < text.length; i += 1) styles[at + i] = style;
  restyle(line, line.text.slice(0, at) + text + line.text.slice(at + text.length), styles);
}

function perCharacter(line) {
  const styles = new Array(line.text.length).fill(0);
  const runs = line.runs ?? [];
  for (let i = 0; i < runs.length; i += 2) styles.fill(runs[i + 1], runs[i], runs[i + 2] ?? line.text.length);
  return styles;
}

function restyle(line, text, styles) {
  line.text = text;
  const runs = [];
  for (let i = 0; i < text.length; i += 1) {
    if (i === 0 || styles[i] !== styles[i - 1]) runs.push(i, styles[i] ?? 0);
  }
  line.runs = runs.length === 0 || (runs.length === 2 && runs[1] === 0) ? null : runs;
}

/** The address if a click on it can do no harm, else nothing. */
export function safeLink(address) {
  return /^(https?|artifact):\/\//i.test(address) ? address : null;
}

// `url='…';alt='…'`, quotes optional.
function attributes(text) {
  const found = {};
  for (const [, name, quoted, bare] of text.matchAll(/(\w+)=(?:'([^']*)'|"?([^;"]*)"?)/g)) found[name] = quoted ?? bare;
  return found;
}

/** The 256 colours beyond the first sixteen, which style.css defines. */
export function paletteColour(number) {
  if (number >= 232) {
    const grey = 8 + (number - 232) * 10;
    return `rgb(${grey} ${grey} ${grey})`;
  }
  const level = (value) => (value === 0 ? 0 : 55 + value * 40);
  const cube = number - 16;
  return `rgb(${level(Math.floor(cube / 36))} ${level(Math.floor(cube / 6) % 6)} ${level(cube % 6)})`;
}

// `--- ` folds, `~~~ ` folds and stays quiet, `+++ ` is open; `^^^ +++` opens the group it stands in.
const HEADER = /^(---|\+\+\+|~~~) +(.*)$/;

/** What a line means for folding: `{ kind, title }` of a group, `'reopen'`, or nothing. */
export function groupOf(text) {
  if (text.startsWith('^^^ +++')) return 'reopen';
  const found = HEADER.exec(text);
  return found === null ? null : { kind: found[1], title: found[2] };
}
