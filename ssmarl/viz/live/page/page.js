"use strict";
// The page draws what the server sends and sends what the viewer does; it knows no rules.
const at = (id) => document.getElementById(id);
const canvas = at("world"), pen = canvas.getContext("2d");
const AGENT = "#0072b2", GOAL = "#009e73", OBSTACLE = "#9a9a9a", CONTACT = "#d55e00", REPLACED = "#e69f00";
const ARROW = 0.4, LINE = 0.5; // metres: an action of 1, half of a separating line
const FLASH = 300; // milliseconds that a contact stays visible
let world = null, frame = null, playing = true, held = null, hovered = null;
const flashes = new Map();

const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/watch`);
const send = (message) => socket.readyState === 1 && socket.send(JSON.stringify(message));
socket.onclose = () => say("The server has gone. Reload when it is back.");
socket.onmessage = (event) => {
  const message = JSON.parse(event.data);
  ({ hello, world: setWorld, frame: setFrame, error: (m) => say(m.message) })[message.type]?.(message);
};

function say(text) { at("message").textContent = text; }

function hello(message) {
  at("policy").textContent = message.policy;
  at("agents").max = message.max_agents;
  at("scenario").replaceChildren(...message.scenarios.map((name) => new Option(name, name)));
  at("filter").append(...message.filters.map((name) => new Option(name, name)));
  at("layout").append(...message.layouts.map((name) => new Option(name, name)));
}

function setWorld(message) {
  world = message;
  flashes.clear();
  say("");
  at("scenario").value = world.scenario;
  at("agents").value = world.agents;
  at("seed").value = world.seed;
  at("filter").value = world.filter ?? "";
  at("layout").value = world.layout ?? "";
  at("agents").disabled = world.layout !== null;
  at("meters").replaceChildren(...world.constraints.map((constraint) => {
    const meter = document.createElement("div");
    meter.className = "meter";
    meter.append(document.createElement("span"), document.createElement("div"));
    meter.lastChild.append(document.createElement("i"));
    return meter;
  }));
}

function setFrame(message) {
  frame = message;
  const now = performance.now();
  for (const agent of frame.contact) flashes.set(agent, now);
  at("count").textContent = `${frame.step} of ${world.length}`;
  at("reward").textContent = frame.reward.toFixed(0);
  at("replaced").textContent = world.filter ? `${frame.replaced.length} of ${world.agents}` : "–";
  at("arrived").textContent = `${frame.arrived} of ${world.agents}`;
  world.constraints.forEach((constraint, i) => {
    const meter = at("meters").children[i], cost = frame.cost[i];
    meter.firstChild.textContent = `${constraint.name}: ${cost.toFixed(2)} of ${constraint.limit} per agent`;
    meter.querySelector("i").style.width = `${Math.min(100, 100 * cost / Math.max(constraint.limit, 1e-9))}%`;
    meter.classList.toggle("over", cost > constraint.limit);
  });
}

// Metres to pixels and back; y points up in the world.
function scale() { return Math.min(canvas.width, canvas.height) / (1.12 * world.side); }
const toX = (x) => canvas.width / 2 + x * scale(), toY = (y) => canvas.height / 2 - y * scale();
function toWorld(event) {
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  return {
    x: ((event.clientX - box.left) * ratio - canvas.width / 2) / scale(),
    y: (canvas.height / 2 - (event.clientY - box.top) * ratio) / scale(),
  };
}

function disc(x, y, radius, fill, outline) {
  pen.beginPath();
  pen.arc(toX(x), toY(y), Math.max(radius * scale(), 2), 0, 2 * Math.PI);
  if (fill) { pen.fillStyle = fill; pen.fill(); }
  if (outline) { pen.strokeStyle = outline; pen.lineWidth = 2; pen.stroke(); }
}

function draw() {
  requestAnimationFrame(draw);
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  pen.fillStyle = "#fafafa";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  if (!world || !frame) return;
  const half = world.side / 2;
  pen.fillStyle = "#fff";
  pen.fillRect(toX(-half), toY(half), world.side * scale(), world.side * scale());
  pen.strokeStyle = "#d8d8d8";
  pen.strokeRect(toX(-half), toY(half), world.side * scale(), world.side * scale());
  const { position, target, obstacle, radius } = frame;
  for (let i = 0; i < radius.length; i++) disc(obstacle[2 * i], obstacle[2 * i + 1], radius[i], OBSTACLE);
  for (let i = 0; i < target.length; i += 2) disc(target[i], target[i + 1], world.goal_radius, null, GOAL);
  if (hovered !== null && 2 * hovered < position.length) {
    const x = position[2 * hovered], y = position[2 * hovered + 1];
    line(x, y, target[2 * hovered], target[2 * hovered + 1], "rgba(0,158,115,0.5)", 1.5);
    for (const link of frame.links) {
      const from = link.kind === "agent" ? position : obstacle;
      const colour = link.kind === "agent" ? "0,114,178" : "90,90,90";
      line(x, y, from[2 * link.index], from[2 * link.index + 1],
        `rgba(${colour},${0.25 + 0.75 * link.weight})`, 1 + 5 * link.weight);
    }
  }
  const now = performance.now();
  const touching = new Set(frame.contact), replaced = new Set(frame.replaced);
  for (let i = 0; 2 * i < position.length; i++) {
    const x = position[2 * i], y = position[2 * i + 1], age = (now - (flashes.get(i) ?? -1e9)) / FLASH;
    if (age < 1) disc(x, y, world.agent_radius * (1.6 + age), null, `rgba(213,94,0,${1 - age})`);
    disc(x, y, world.agent_radius, touching.has(i) ? CONTACT : AGENT, replaced.has(i) ? REPLACED : null);
  }
  if (hovered !== null && frame.filtering) drawFiltering(position[2 * hovered], position[2 * hovered + 1]);
}

// The certificate at one agent: what it wanted, what it does, and the lines of its neighbours.
function drawFiltering(x, y) {
  const { nominal, applied, lines } = frame.filtering;
  for (const [nx, ny, bound] of lines) {
    const u = x + bound * nx, v = y + bound * ny;
    line(u - LINE * ny, v + LINE * nx, u + LINE * ny, v - LINE * nx, "rgba(204,121,167,0.9)", 2);
  }
  if (nominal === null) return;
  pen.setLineDash([5, 4]);
  arrow(x, y, ARROW * nominal[0], ARROW * nominal[1], CONTACT);
  pen.setLineDash([]);
  arrow(x, y, ARROW * applied[0], ARROW * applied[1], "#000");
}

function arrow(x, y, dx, dy, colour) {
  line(x, y, x + dx, y + dy, colour, 2.5);
  for (const side of [2.6, -2.6]) {
    const cos = Math.cos(side), sin = Math.sin(side);
    line(x + dx, y + dy, x + dx + 0.2 * (cos * dx - sin * dy), y + dy + 0.2 * (sin * dx + cos * dy), colour, 2.5);
  }
}

function line(x, y, u, v, colour, width) {
  pen.beginPath();
  pen.moveTo(toX(x), toY(y));
  pen.lineTo(toX(u), toY(v));
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.stroke();
}

// What lies under the pointer: agents are pointed at, obstacles and goals are held.
function find(points, reach, place) {
  let best = null, least = Infinity;
  for (let i = 0; 2 * i < points.length; i++) {
    const distance = Math.hypot(points[2 * i] - place.x, points[2 * i + 1] - place.y);
    if (distance < reach(i) && distance < least) { best = i; least = distance; }
  }
  return best;
}
const finger = () => 6 / scale();
function thing(place) {
  const obstacle = find(frame.obstacle, (i) => frame.radius[i] + finger(), place);
  if (obstacle !== null) return { kind: "obstacle", index: obstacle };
  const goal = find(frame.landmark, () => world.goal_radius + finger(), place);
  return goal === null ? null : { kind: "goal", index: goal };
}

canvas.addEventListener("pointerdown", (event) => {
  if (!frame) return;
  const place = toWorld(event);
  held = thing(place);
  if (held) canvas.setPointerCapture(event.pointerId);
  else if (find(frame.position, () => world.agent_radius + finger(), place) === null)
    send({ type: "add", ...place });
});
let waiting = false;
canvas.addEventListener("pointermove", (event) => {
  if (!frame) return;
  const place = toWorld(event);
  if (held) {
    if (waiting) return; // at most one message a frame
    waiting = true;
    requestAnimationFrame(() => { waiting = false; });
    send({ type: "move", ...held, ...place });
    return;
  }
  const agent = find(frame.position, () => world.agent_radius + finger(), place);
  if (agent !== hovered) { hovered = agent; send({ type: "hover", agent }); }
  canvas.style.cursor = thing(place) ? "grab" : "crosshair";
});
canvas.addEventListener("pointerup", (event) => {
  if (held) send({ type: "move", ...held, ...toWorld(event) });
  held = null;
});

at("choice").addEventListener("submit", (event) => {
  event.preventDefault();
  say("preparing …");
  send({ type: "configure", scenario: at("scenario").value,
    agents: Number(at("agents").value), seed: Number(at("seed").value), layout: at("layout").value || null });
});
at("layout").addEventListener("change", () => { at("agents").disabled = at("layout").value !== ""; });
at("filter").addEventListener("change", () => {
  say("preparing …");
  send({ type: "filter", name: at("filter").value || null });
});
function setPlaying(value) {
  playing = value;
  at("play").textContent = playing ? "pause" : "play";
}
at("play").addEventListener("click", () => { setPlaying(!playing); send({ type: playing ? "play" : "pause" }); });
at("step").addEventListener("click", () => { setPlaying(false); send({ type: "step" }); });
at("again").addEventListener("click", () => send({ type: "restart", seed: Number(at("seed").value) }));
at("speed").addEventListener("input", () => {
  const value = 2 ** Number(at("speed").value);
  at("times").textContent = `${value}×`;
  send({ type: "speed", value });
});
draw();
