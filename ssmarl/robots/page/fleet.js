"use strict";
// The page draws what the station sends; the only thing it can ask for is a stop.
const at = (id) => document.getElementById(id);
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const sheet = new CSSStyleSheet();
sheet.replaceSync(`
  body { margin: 0; font: 15px system-ui, sans-serif; color: #222; background: #fafafa; }
  main { display: flex; flex-wrap: wrap; min-height: 100vh; }
  canvas { flex: 1 1 480px; min-height: 60vh; height: 100vh; width: 60vw; }
  section { flex: 0 1 340px; padding: 1rem; }
  h1 { font-size: 1.1rem; } td, th { text-align: left; padding: 0.15rem 0.6rem 0.15rem 0; }
  button { font: inherit; font-weight: 600; color: #fff; background: #b00020; border: 0;
           border-radius: 6px; padding: 0.7rem 1.2rem; cursor: pointer; }
  .drive { color: #00704f; } .brake { color: #8a5a00; } .stop, .emergency { color: #b00020; }
`);
document.adoptedStyleSheets = [sheet];
const canvas = at("room"), pen = canvas.getContext("2d");
let room = null, frame = null;
const trails = [];

const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/watch`);
socket.onclose = () => { at("message").textContent = "The run has ended."; };
socket.onmessage = (event) => {
  const message = JSON.parse(event.data);
  if (message.type === "room") { room = message; at("title").textContent = room.title; return; }
  frame = message;
  at("message").textContent = `${frame.time.toFixed(1)} s, ${frame.arrived} of ${frame.state.length} arrived`;
  frame.position.forEach((place, i) => {
    (trails[i] ??= []).push(place);
    if (trails[i].length > 1500) trails[i].shift();
  });
  at("rows").replaceChildren(...frame.state.map((state, i) => {
    const row = document.createElement("tr");
    const cells = [String(i), frame.reason[i] ? `${state} (${frame.reason[i]})` : state,
      `${frame.error[i].toFixed(1)} mm`];
    row.append(...cells.map((text) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      return cell;
    }));
    row.className = state;
    return row;
  }));
};
at("stop").onclick = () => { if (socket.readyState === 1) socket.send("stop"); };

function scale() { return Math.min(canvas.width, canvas.height) / (1.15 * room.side); }
const toX = (x) => canvas.width / 2 + x * scale(), toY = (y) => canvas.height / 2 - y * scale();

function ring(x, y, radius, fill, line) {
  pen.beginPath();
  pen.arc(toX(x), toY(y), radius * scale(), 0, 2 * Math.PI);
  if (fill) { pen.fillStyle = fill; pen.fill(); }
  if (line) { pen.strokeStyle = line; pen.lineWidth = 2; pen.stroke(); }
}

function path(points, colour) {
  pen.beginPath();
  points.forEach(([x, y], i) => (i ? pen.lineTo(toX(x), toY(y)) : pen.moveTo(toX(x), toY(y))));
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.stroke();
}

function draw() {
  requestAnimationFrame(draw);
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  pen.fillStyle = "#fafafa";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  if (!room || !frame) return;
  const half = room.side / 2;
  pen.fillStyle = "#fff";
  pen.fillRect(toX(-half), toY(half), room.side * scale(), room.side * scale());
  room.obstacle.forEach(([x, y], i) => ring(x, y, room.obstacle_radius[i], "#9a9a9a"));
  frame.goal.forEach(([x, y], i) => ring(x, y, room.radius, null, COLOURS[i % COLOURS.length]));
  frame.position.forEach(([x, y], i) => {
    const colour = COLOURS[i % COLOURS.length], heading = frame.heading[i];
    path(trails[i], colour);
    ring(x, y, room.radius, frame.state[i] === "drive" ? colour : "#777");
    path([[x, y], [x + room.radius * Math.cos(heading), y + room.radius * Math.sin(heading)]], "#fff");
    const [u, v] = frame.reference[i], arm = 0.5 * room.radius;
    path([[u - arm, v], [u + arm, v]], "#000");
    path([[u, v - arm], [u, v + arm]], "#000");
  });
}
draw();
