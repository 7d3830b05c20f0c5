// Who is there to run jobs: queues, agents and stacks.

import { button } from './actions.js';
import { h } from './dom.js';
import { count, emoji, sinceElement } from './format.js';
import { agentCommand, buildPath, command } from './pipelines.js';
import { act, follow } from './server.js';
import { badge } from './states.js';

export const agents = {
  title: () => 'Agents',
  start(route, show) {
    return follow('/-/agents', show);
  },
  draw({ cluster, queues, agents: list, stacks }) {
    const here = list.filter((agent) => agent.state === 'connected');
    const gone = list.filter((agent) => agent.state !== 'connected');
    return [
      h('div', { class: 'heading' }, h('h1', {}, 'Agents'),
        h('span', { class: 'note' }, `${count(here.length, 'agent')} and ${count(stacks.filter((one) => one.state === 'connected').length, 'stack')} connected`)),
      h('section', {}, h('h2', {}, 'Queues'), h('ul', { class: 'queues' }, queues.map((queue) => queueCard(cluster, queue)))),
      h('section', {}, h('h2', {}, 'Agents'),
        here.length === 0 ? noAgents() : h('ul', { class: 'table' }, here.map(agentRow))),
      h('section', {}, h('h2', {}, 'Stacks'),
        stacks.length === 0
          ? h('p', { class: 'note' }, 'No stack has registered. Stacks start agents for jobs: the Buildkite Operator is one.')
          : h('ul', { class: 'table' }, stacks.map(stackRow))),
      gone.length > 0 && h('details', { class: 'section' },
        h('summary', {}, `${count(gone.length, 'agent')} no longer connected`), h('ul', { class: 'table' }, gone.map(agentRow))),
    ];
  },
};

function noAgents() {
  return h('div', { class: 'empty' }, h('h3', {}, 'No agent is connected'),
    h('p', {}, 'Jobs wait until there is one. Start one on this machine:'), command(agentCommand([])));
}

function queueCard(cluster, queue) {
  const waiting = queue.scheduled > 0 && queue.served_by === 0;
  return h('li', { class: `card queue${queue.paused ? ' paused' : ''}`, key: queue.key },
    h('div', { class: 'card-head' },
      h('h3', { class: 'grow ellipsis' }, queue.key),
      queue.paused && h('span', { class: 'badge warn' }, 'Paused'),
      queue.id && button({
        name: `pause ${queue.key}`, label: queue.paused ? 'Resume' : 'Pause', work: () =>
          act('POST', `clusters/${cluster}/queues/${queue.id}/${queue.paused ? 'resume' : 'pause'}_dispatch`),
      })),
    h('dl', { class: 'numbers' },
      number('waiting', queue.scheduled), number('reserved', queue.reserved), number('running', queue.running),
      number('serving', queue.served_by)),
    waiting && h('div', { class: 'hint' }, h('p', {}, 'Jobs wait and nobody serves this queue. Start an agent:'), command(agentCommand(queue.key === 'default' ? [] : [`queue=${queue.key}`]))));
}

function number(name, value) {
  return h('div', {}, h('dt', {}, name), h('dd', {}, String(value)));
}

function agentRow(agent) {
  return h('li', { class: 'line', key: agent.id },
    badge(agent.state),
    h('div', { class: 'grow' },
      h('div', { class: 'strong ellipsis' }, agent.name, agent.paused && h('span', { class: 'badge warn' }, 'Paused'), agent.stopping && h('span', { class: 'badge warn' }, 'Stopping')),
      h('div', { class: 'facts note' },
        h('span', { class: 'chip' }, agent.queue), agent.tags.map((tag) => h('span', { class: 'chip' }, tag)),
        agent.version && h('span', {}, `v${agent.version}`), h('span', {}, agent.hostname))),
    agent.job
      ? h('a', { class: 'ellipsis doing', href: `${buildPath(agent.job.pipeline, agent.job.number)}/jobs/${agent.job.id}` },
        `${agent.job.pipeline} #${agent.job.number} · ${emoji(agent.job.name)}`)
      : h('span', { class: 'note doing' }, agent.state === 'connected' ? 'Idle' : ['Last seen ', sinceElement(agent.last_seen)]),
    agent.state === 'connected' && !agent.stopping &&
      button({ name: `stop ${agent.id}`, label: 'Stop', sure: 'Really stop?', title: 'Finish its job, then disconnect', work: () => act('PUT', `agents/${agent.id}/stop`, { force: false }) }));
}

function stackRow(stack) {
  return h('li', { class: 'line', key: stack.key },
    badge(stack.state),
    h('div', { class: 'grow' },
      h('div', { class: 'strong ellipsis' }, stack.key),
      h('div', { class: 'facts note' }, h('span', { class: 'chip' }, stack.queue), h('span', {}, stack.kind), stack.state === 'connected' ? null : h('span', {}, 'Last seen ', sinceElement(stack.last_seen)))),
    h('span', { class: 'note doing' }, `${count(stack.reserved, 'job')} reserved`));
}
