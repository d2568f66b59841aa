import { MediaQuery } from 'svelte/reactivity';

/** Whether the window is as narrow as a phone's: the width below which the styles change too. */
export const phone = new MediaQuery('max-width: 720px');
