// Buttons that change something, and the dialogs that ask first. What goes wrong is said where it happened.

import { h, render } from './dom.js';
import { emoji } from './format.js';
import { act } from './server.js';

// What is under way or went wrong, by the name of the action.
const states = new Map();
let redraw = () => {};

/** Tells this module how to draw the page again. */
export function onAction(draw) {
  redraw = draw;
}

async function perform(name, work) {
  states.set(name, { busy: true });
  redraw();
  try {
    await work();
    states.delete(name);
  } catch (error) {
    states.set(name, { error: error.message });
  }
  redraw();
}

/**
 * A button for one action. `name` tells it apart from all others; `sure` asks once more; `disabled` says why it
 * cannot be used.
 */
export function button({ name, label, busy = label, sure, tone = '', title, disabled, work }) {
  const state = states.get(name) ?? {};
  const click = () => {
    if (sure && !state.asked) {
      states.set(name, { asked: true });
      setTimeout(() => {
        if (states.get(name)?.asked) {
          states.delete(name);
          redraw();
        }
      }, 4000);
      redraw();
    } else {
      perform(name, work);
    }
  };
  return h('span', { class: 'action', key: `action ${name}` },
    h('button', {
      type: 'button', class: `button ${state.asked ? 'danger' : tone}`, title: disabled ?? title,
      disabled: state.busy || Boolean(disabled), onclick: click,
    }, state.busy ? busy : state.asked ? sure : label),
    state.error && h('span', { class: 'problem', role: 'alert' }, state.error,
      h('button', { type: 'button', class: 'close', 'aria-label': 'Dismiss', onclick: () => { states.delete(name); redraw(); } }, '×')));
}

/** Opens a dialog with a form. `fields` are described elements; `submit` gets the form's data. */
function ask({ title, note, fields, label, submit }) {
  const dialog = document.createElement('dialog');
  let error = null;
  let busy = false;
  const draw = () => render(dialog,
    h('form', { method: 'dialog', onsubmit: send, novalidate: false },
      h('h2', {}, title),
      note && h('p', { class: 'prompt' }, note),
      ...fields,
      error && h('p', { class: 'problem', role: 'alert' }, error),
      h('div', { class: 'buttons' },
        h('button', { type: 'button', class: 'button', onclick: () => dialog.close() }, 'Close'),
        h('button', { type: 'submit', class: 'button primary', disabled: busy }, label))));
  async function send(event) {
    event.preventDefault();
    busy = true;
    error = null;
    draw();
    try {
      await submit(new FormData(event.target));
      dialog.close();
    } catch (problem) {
      error = problem.message;
      busy = false;
      draw();
    }
  }
  draw();
  dialog.addEventListener('close', () => dialog.remove());
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
}

function field(label, input, hint) {
  return h('label', { class: 'field' }, h('span', {}, label), input, hint && h('small', {}, hint));
}

/** Asks what to build, then builds it. `done` gets the new build. */
export function newBuild(pipeline, given, done) {
  ask({
    title: `New build of ${pipeline.name}`,
    label: 'Create build',
    fields: [
      field('Message', h('input', { name: 'message', value: given.message ?? '', placeholder: 'What the build is about' })),
      h('div', { class: 'pair' },
        field('Branch', h('input', { name: 'branch', value: given.branch ?? pipeline.default_branch ?? 'main', required: true })),
        field('Commit', h('input', { name: 'commit', value: given.commit ?? 'HEAD', required: true }))),
      field('Environment', h('textarea', { name: 'env', rows: 4, placeholder: 'NAME=value', spellcheck: 'false' }), 'One variable on each line.'),
    ],
    submit: async (form) => {
      const env = variables(form.get('env'));
      const body = { message: form.get('message'), branch: form.get('branch'), commit: form.get('commit'), env };
      done(await act('POST', `pipelines/${pipeline.slug}/builds`, body));
    },
  });
}

function variables(text) {
  const env = {};
  for (const line of text.split('\n').map((one) => one.trim()).filter((one) => one !== '')) {
    const at = line.indexOf('=');
    if (at <= 0) throw new Error(`"${line}" is not of the form NAME=value.`);
    env[line.slice(0, at)] = line.slice(at + 1);
  }
  return env;
}

/** Asks what a block or input step asks, then lets the build go on. */
export function unblock(job, name, gate) {
  ask({
    title: name,
    note: gate.prompt && emoji(gate.prompt),
    label: gate.submit ?? 'Unblock',
    fields: gate.fields.map(gateField),
    submit: async (form) => {
      const fields = {};
      // Several choices are one value, a line each.
      for (const key of new Set(form.keys())) fields[key] = form.getAll(key).join('\n');
      await act('PUT', `jobs/${job}/unblock`, { fields });
    },
  });
}

function gateField(asked) {
  const label = asked.required ? emoji(asked.label) : `${emoji(asked.label)} (optional)`;
  const hint = asked.hint && emoji(asked.hint);
  const { text, select } = asked.kind;
  if (text) {
    return field(label, h('input', { name: asked.key, value: asked.default ?? '', required: asked.required, pattern: text.format }), hint);
  }
  const chosen = asked.default?.split('\n') ?? [];
  if (select.multiple) {
    return h('fieldset', { class: 'field' }, h('legend', {}, label),
      select.options.map((option) => h('label', { class: 'choice' },
        h('input', { type: 'checkbox', name: asked.key, value: option.value, checked: chosen.includes(option.value) }), emoji(option.label))),
      hint && h('small', {}, hint));
  }
  return field(label,
    h('select', { name: asked.key, required: asked.required },
      chosen.length === 0 && h('option', { value: '' }, 'Choose…'),
      select.options.map((option) => h('option', { value: option.value, selected: chosen.includes(option.value) }, emoji(option.label)))),
    hint);
}
